// Decides what to do next for one training job. Pure: no client, no clock, nothing is changed. The planner
// works on the known facts of the job; when it needs another one, the next action is to find it out.
//
//   JobFacts facts{.job = &job, .status = &status, .now = clock.wall_now()};
//   JobStep step = plan_next(facts);   // the executor carries it out, updates the facts, and plans again
//
// A job goes through attempts. Each attempt is first written into the status, then created (plan, Service,
// Job), then watched. Its end is written into the status, with the evidence, before anything follows from it.
// A change of the spec is written together with an annotation that names the attempt after which it was
// decided. Only then is the next attempt written into the status. So the objects alone show what was done
// last, and after a crash at any point the plan continues from there. Any thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/json/json.h"
#include "controllers/attempt_pods.h"
#include "crds/training_job.h"
#include "crds/training_job_status.h"
#include "remediation/remediation.h"

namespace plimsoll::controllers {

// After this long the job is looked at again although nothing has changed; empty: only after a change.
using RequeueAfter = std::optional<std::chrono::milliseconds>;

// For changes that no watch reports: a quota, a lost node.
inline constexpr std::chrono::seconds kPollInterval{30};

struct JobFacts {
  const crds::TrainingJob* job = nullptr;   // required
  const crds::JobStatus* status = nullptr;  // required
  Clock::WallTime now{};
  // From the caches, about the attempt that runs:
  Json cached_child{};            // its Job, where this TrainingJob controls it; else null
  bool earlier_job_runs = false;  // a Job of an earlier attempt has not ended
  // Found out by actions; empty or false until then. Valid until the status gets another attempt or the
  // attempt ends.
  std::optional<Json> live_child{};            // kReadChild: null when there is none; may be another owner's
  std::optional<std::string> unschedulable{};  // kReadPods: the scheduler's reason; empty: all are placed
  std::optional<RemainingPods> remaining_pods{};          // kFindPods
  std::optional<remediation::Remediation> remediation{};  // kDecideRemediation
  std::optional<std::string> restored{};  // kRestoreChildren: why a name is taken; empty: all are there
  bool earlier_jobs_removed = false;      // kRemoveEarlierJobs
  bool is_current = false;                // kCheckCurrent
  bool sized = false;                     // kSize
};

enum class JobAction {
  // Ends the pass.
  kNothing,         // until something changes
  kWait,            // `after`
  kDeleteJob,       // its time to live is over
  kSuspend,         // end the attempt, if one runs
  kWaitForPods,     // of `message`
  kRecordStart,     // of `child`
  kReportProgress,  // condition Running: `holds`, `reason`, `message`
  // Finds something out.
  kReadChild,
  kReadPods,
  kFindPods,  // `which`
  kCheckCurrent,
  kRemoveEarlierJobs,  // of attempts before `attempt`
  // Changes the job; the pass continues.
  kResume,
  kSize,
  kBeginAttempt,   // with `expandable_segments` and `shared_memory`
  kRefuseAttempt,  // the job is invalid: `message`
  kCreateChildren,
  kRestoreChildren,
  kRecordEnd,      // of `child`
  kRecordOutcome,  // the attempt ended without its Job: `outcome`, `message`
  kDecideRemediation,
  kAnnounceRestart,
  kFailAtDeadline,
  kFail  // the job: `reason`, `message`
};

struct JobStep {
  JobAction action = JobAction::kNothing;
  RequeueAfter after{};
  bool holds = false;
  bool expandable_segments = false;
  std::optional<Bytes> shared_memory{};
  std::int64_t attempt = 0;
  crds::Outcome outcome = crds::Outcome::kUnknown;
  std::string reason{};
  std::string message{};
  WhichPods which{};
  Json child{};
};

JobStep plan_next(const JobFacts& facts);

// How long until spec.activeDeadlineSeconds is over, 0 when it is; empty: the job has no deadline or has not
// started, is over, or is being deleted.
RequeueAfter time_to_deadline(const JobFacts& facts);

}  // namespace plimsoll::controllers
