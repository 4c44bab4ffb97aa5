// The class behind look_after() (training_job_pass.h): one pass over one job, step by step. Its members are
// in two files: training_job_pass.cc decides what comes next for the job, and training_job_attempt.cc creates
// an attempt's children, watches them and records the end. For these two files only.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/budget.h"
#include "controllers/attempt_plan.h"
#include "controllers/attempt_pods.h"
#include "controllers/child_writer.h"
#include "controllers/job_children.h"
#include "controllers/remediation.h"
#include "controllers/training_job_pass.h"

namespace plimsoll::controllers {

inline constexpr const char* kFieldManager = "plimsoll.dev/trainingjob";
// Of all decisions of a pass: the admission has less, but a worker must not be one job's for long.
inline constexpr std::chrono::seconds kTimeToDecide{30};
// A pass does what follows from what it has just done, so long as it comes to an end.
inline constexpr int kMostSteps = 8;
// Children of the last attempts stay, for their logs.
inline constexpr std::int64_t kKeptAttempts = 3;
// At what no watch tells of: a quota, a lost node.
inline constexpr std::chrono::seconds kLookAgain{30};

// What one step gives: whether there is more to do at once, else when to look again.
struct Step {
  bool again = false;
  Next after = std::nullopt;
};

class Pass {
 public:
  Pass(const Surroundings& surroundings, const Json& object, crds::TrainingJob job)
      : with_(surroundings),
        object_(object),
        job_(std::move(job)),
        status_(crds::decode_status(object)),
        written_(status_),
        children_(*with_.client, object_, call_) {
    call_.field_manager = kFieldManager;
    call_.stop = with_.stop;
  }

  Result<Next> run();

 private:
  Result<Step> step();
  Result<Step> finished();
  Result<Json> child_that_ended();
  Result<Step> suspend();
  Result<Step> begin(bool expandable_segments);
  Result<Step> watch(crds::Attempt& attempt);
  Result<AttemptChildren> children_of(const crds::Attempt& attempt);
  Result<Step> make_children_of(crds::Attempt& attempt);
  Result<Step> look_at(crds::Attempt& attempt, const Json& child);
  Result<void> restore_what_pods_need(const crds::Attempt& attempt);
  Result<Step> started(crds::Attempt& attempt, const Json& child);
  Result<Step> ended(crds::Attempt& attempt, const char* reason = nullptr);
  Result<Step> name_taken(crds::Attempt& attempt, const Error& error);
  Result<std::optional<Step>> wait_for_earlier_pods(std::int64_t next);
  Result<void> remove_jobs_before(std::int64_t next);
  bool earlier_job_runs(const crds::Attempt& attempt) const;
  Result<std::optional<Step>> wait_for_pods_of(const crds::Attempt& attempt, const Json& child);
  Result<std::optional<Step>> wait_for(const std::string& what, const WhichPods& which);
  std::chrono::milliseconds poll_interval() const;
  Result<Step> follow(const crds::Attempt& attempt);
  Result<Step> fail(const std::string& reason, const std::string& message);
  Result<Step> fail_for_deadline();
  Result<Step> refuse(const std::string& problems);
  // What is wrong with the job, which no webhook may have seen; empty for a valid one.
  std::string problems() const { return crds::to_string(crds::validate(job_)); }

  Result<void> size();
  Result<Remediation> remediation(const crds::Attempt& attempt);
  Result<void> patch_spec(Json patch);
  Result<AttemptPlan> make_plan(const crds::Attempt& attempt);
  void record_what_was_asked();
  Result<std::vector<Json>> all_pods(const crds::Attempt& attempt, const Json& child);
  Result<void> is_current();
  void remove_children(std::int64_t number);
  Result<void> write();
  Result<void> reload(const Json& object);

  void set(const char* type, bool holds, const char* reason, const std::string& message);
  void tell(kube::EventType type, const char* reason, const std::string& message);
  std::string now() const { return format_time(with_.clock->wall_now()); }
  std::string child_of(const crds::Attempt& attempt) const { return child_name(job_.name, attempt.number); }
  std::string key_of_child(const crds::Attempt& attempt) const {
    return job_.namespace_name + "/" + child_of(attempt);
  }
  std::int64_t generation() const {
    return JsonView(member(object_, {"metadata", "generation"})).integer().value_or(0);
  }
  std::string uid() const { return text_member(object_, {"metadata", "uid"}); }
  Next until(const std::string& time) const;
  std::optional<Next> until_deadline() const;
  Budget& budget();

  const Surroundings& with_;
  Json object_;  // as the API server has it; the writes of this pass included
  crds::TrainingJob job_;
  crds::JobStatus status_;
  crds::JobStatus written_;
  kube::CallOptions call_;
  ChildWriter children_;
  std::optional<Budget> budget_;     // of all that this pass decides, from its first decision on
  std::optional<AttemptPlan> plan_;  // of the attempt that this pass has begun
  struct Told {
    kube::EventType type;
    std::string reason;
    std::string message;
  };
  std::vector<Told> told_;  // once the status is written
};

}  // namespace plimsoll::controllers
