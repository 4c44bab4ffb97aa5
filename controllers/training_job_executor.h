// TrainingJobExecutor carries out what the planner decides for one job (controllers/training_job_planner.h):
// API calls, estimates, conditions and events. What to do next is decided there alone.
//
//   Result<RequeueAfter> after = TrainingJobExecutor(context, object, job).run();
//
// For one pass, in one thread. The context must outlive it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/budget.h"
#include "controllers/attempt_plan.h"
#include "controllers/child_writer.h"
#include "controllers/job_children.h"
#include "controllers/job_record.h"
#include "controllers/training_job_pass.h"
#include "controllers/training_job_planner.h"

namespace plimsoll::controllers {

inline constexpr const char* kFieldManager = "plimsoll.dev/trainingjob";

class TrainingJobExecutor {
 public:
  TrainingJobExecutor(const PassContext& context, const Json& object, crds::TrainingJob job);

  // Until the planner has nothing to do.
  Result<RequeueAfter> run();

 private:
  Result<void> carry_out(const JobStep& step);

  // Find something out.
  Result<void> read_child();
  Result<void> find_pods(const WhichPods& which);
  Result<void> remove_earlier_jobs(std::int64_t before);
  Result<std::vector<Json>> all_pods(const Json& child);

  // Change the job.
  Result<void> size();
  Result<void> begin_attempt(bool expandable_segments);
  Result<void> refuse_attempt(const std::string& message);
  Result<void> create_children();
  Result<void> restore_children();
  Result<void> record_end(const Json& child);
  Result<void> record_outcome(crds::Outcome outcome, const std::string& message,
                              const std::string& reason = {});
  Result<void> finish_attempt(const std::string& reason);
  Result<void> decide_remediation();
  Result<void> announce_restart();
  Result<void> stop_attempt(crds::Outcome outcome, const std::string& message);
  Result<void> fail_at_deadline();
  Result<void> fail(const std::string& reason, const std::string& message);
  // End the pass.
  Result<void> suspend();
  Result<void> wait_for_pods(const JobStep& step);
  Result<void> record_start(const Json& child);
  Result<void> report_progress(const JobStep& step);
  Result<void> end_pass(RequeueAfter after);  // writes the status

  crds::Attempt new_attempt() const;
  void record_request();
  Result<AttemptPlan> make_plan(const crds::Attempt& attempt);
  Result<AttemptChildren> make_children_of_attempt();
  void remove_children(std::int64_t number);
  void reset_facts();
  std::chrono::milliseconds poll_interval() const;
  Budget& budget();

  const crds::TrainingJob& job() const { return record_.job(); }
  crds::Attempt& attempt() { return record_.status.attempts.back(); }
  std::string child_of(const crds::Attempt& attempt) const { return child_name(job().name, attempt.number); }
  std::string key_of_child(const crds::Attempt& attempt) const {
    return job().namespace_name + "/" + child_of(attempt);
  }
  bool runs() const;

  const PassContext& context_;
  kube::CallOptions call_;
  JobRecord record_;
  ChildWriter children_;
  JobFacts facts_;
  std::optional<RequeueAfter> ended_;  // set once the pass has ended
  std::optional<Budget> budget_;       // of all that this pass decides, from its first decision on
  std::optional<AttemptPlan> plan_;    // of the attempt that this pass has begun
};

}  // namespace plimsoll::controllers
