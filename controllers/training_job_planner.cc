#include "controllers/training_job_planner.h"

#include <algorithm>
#include <utility>

#include "base/json/view.h"
#include "controllers/child_writer.h"
#include "controllers/job_children.h"
#include "remediation/attempt_record.h"

namespace plimsoll::controllers {
namespace {

using crds::Attempt;
using crds::Outcome;
using remediation::JobEnd;
using std::chrono::milliseconds;
using std::chrono::seconds;

// 0 when the time is over; empty for no time. Times are written without fractions of a second.
RequeueAfter time_until(std::optional<Clock::WallTime> time, Clock::WallTime now) {
  if (!time) {
    return std::nullopt;
  }
  return std::max(std::chrono::duration_cast<milliseconds>(*time - now), milliseconds(0));
}

bool is_being_deleted(const crds::TrainingJob& job) {
  return !member(job.raw, {"metadata", "deletionTimestamp"}).isNull();
}

bool is_over(const crds::JobStatus& status) {
  return status.is_true("Succeeded") || status.is_true("Failed");
}

std::int64_t count_of(const Json& child, const char* list, const char* name) {
  return JsonView(member(child, {list, name})).integer().value_or(0);
}

std::string text_of(const Attempt& attempt) {
  return "attempt " + std::to_string(attempt.number);
}

class Planner {
 public:
  explicit Planner(const JobFacts& facts)
      : facts_(facts),
        job_(*facts.job),
        status_(*facts.status),
        uid_(text_member(job_.raw, {"metadata", "uid"})) {}

  JobStep next() const {
    if (is_being_deleted(job_)) {
      return {};  // the garbage collector deletes its children
    }
    if (is_over(status_)) {
      return finished();
    }
    if (time_to_deadline(facts_) == milliseconds(0)) {
      return stop(JobAction::kFailAtDeadline);
    }
    // A suspension that has begun ends the attempt, though the job may have been resumed since.
    if (job_.spec.suspend || (status_.is_true("Suspended") && runs())) {
      return stop(JobAction::kSuspend);
    }
    if (status_.is_true("Suspended")) {
      return {.action = JobAction::kResume};
    }
    if (status_.attempts.empty()) {
      return begin(false, {});
    }
    const Attempt& attempt = status_.attempts.back();
    return runs() ? watch(attempt) : follow(attempt);
  }

 private:
  JobStep finished() const {
    const std::optional<Clock::WallTime> ended = parse_time(status_.completion_time);
    if (!job_.spec.ttl_seconds_after_finished || !ended) {
      return {};
    }
    const RequeueAfter left = time_until(*ended + seconds(*job_.spec.ttl_seconds_after_finished), facts_.now);
    return *left > milliseconds(0) ? JobStep{.action = JobAction::kWait, .after = left}
                                   : JobStep{.action = JobAction::kDeleteJob};
  }

  // An attempt that has already ended by itself keeps its own outcome.
  JobStep stop(JobAction action) const {
    if (runs()) {
      if (!facts_.live_child) {
        return {.action = JobAction::kReadChild};
      }
      if (is_ours(*facts_.live_child) && remediation::end_of(*facts_.live_child) != JobEnd::kNone) {
        return {.action = JobAction::kRecordEnd, .child = *facts_.live_child};
      }
    }
    return {.action = action};
  }

  JobStep begin(bool expandable_segments, std::optional<Bytes> shared_memory) const {
    if (const RequeueAfter wait = time_until(parse_time(status_.next_attempt_time), facts_.now);
        wait && *wait > milliseconds(0)) {
      return {.action = JobAction::kWait, .after = wait};
    }
    const std::int64_t number = status_.attempts.empty() ? 0 : status_.attempts.back().number + 1;
    if (!facts_.earlier_jobs_removed) {
      return {.action = JobAction::kRemoveEarlierJobs, .attempt = number};
    }
    if (std::optional<JobStep> wait = wait_for_pods(
            "attempt " + std::to_string(number) + " begins when the pods of earlier attempts are gone", {})) {
      return *std::move(wait);
    }
    if (!facts_.sized) {  // before anything is computed from the spec
      if (const std::string problems = this->problems(); !problems.empty()) {
        return {.action = JobAction::kRefuseAttempt, .message = "the job is invalid: " + problems};
      }
      if (status_.attempts.empty()) {
        return {.action = JobAction::kSize};
      }
    }
    return {.action = JobAction::kBeginAttempt,
            .expandable_segments = expandable_segments,
            .shared_memory = shared_memory};
  }

  JobStep watch(const Attempt& attempt) const {
    if (facts_.earlier_job_runs && !facts_.earlier_jobs_removed) {
      return {.action = JobAction::kRemoveEarlierJobs, .attempt = attempt.number};
    }
    if (!facts_.cached_child.isNull()) {
      return attempt.start_time.empty()
                 ? JobStep{.action = JobAction::kRecordStart, .child = facts_.cached_child}
                 : observe(attempt, facts_.cached_child);
    }
    if (attempt.start_time.empty()) {
      return create(attempt);
    }
    if (!facts_.live_child) {  // the cache may be behind
      return {.action = JobAction::kReadChild};
    }
    if (is_ours(*facts_.live_child)) {
      return observe(attempt, *facts_.live_child);
    }
    return {.action = JobAction::kRecordOutcome,
            .outcome = Outcome::kInfrastructureFailure,
            .message = "the Job " + child_of(attempt) + " was deleted"};
  }

  JobStep create(const Attempt& attempt) const {
    // Nothing is created from a stale copy: the attempt may have been created, ended and deleted since.
    if (!facts_.is_current) {
      return {.action = JobAction::kCheckCurrent};
    }
    // An operator that died here may have created the Job already; then its pods are this attempt's.
    if (!facts_.live_child) {
      return {.action = JobAction::kReadChild};
    }
    const Json& child = *facts_.live_child;
    if (is_ours(child)) {
      return {.action = JobAction::kRecordStart, .child = child};
    }
    // No pods were left when the attempt began, but its Job may have been created and deleted since.
    const bool orphan = !child.isNull() && !has_owner(child);
    if (std::optional<JobStep> wait =
            wait_for_pods(text_of(attempt) + " starts when the pods of earlier attempts are gone",
                          {.except_job_uid = orphan ? text_member(child, {"metadata", "uid"}) : ""})) {
      return *std::move(wait);
    }
    // The job may have been changed since the attempt began.
    if (const std::string problems = this->problems(); !problems.empty()) {
      return {.action = JobAction::kRecordOutcome,
              .outcome = Outcome::kUserError,
              .message = "the job is invalid: " + problems};
    }
    return {.action = JobAction::kCreateChildren};
  }

  JobStep observe(const Attempt& attempt, const Json& child) const {
    if (remediation::end_of(child) != JobEnd::kNone) {
      return {.action = JobAction::kRecordEnd, .child = child};
    }
    // Pods of a Job that ends or is deleted may take their time to terminate, or be held by a lost node.
    if (!member(child, {"metadata", "deletionTimestamp"}).isNull() ||
        count_of(child, "status", "terminating") > 0) {
      if (std::optional<JobStep> wait =
              wait_for_pods(text_of(attempt) + " waits for pods that terminate",
                            {.terminating_of_job_uid = text_member(child, {"metadata", "uid"})})) {
        return *std::move(wait);
      }
    }
    const std::int64_t wanted = count_of(child, "spec", "parallelism");
    const std::int64_t ready = count_of(child, "status", "ready");
    const std::string pods = std::to_string(ready) + " of " + std::to_string(wanted) + " pods are ready";
    if (member(child, {"spec", "suspend"}) == Json(true)) {
      return {.action = JobAction::kReportProgress,
              .reason = "JobSuspended",
              .message = "the Job " + child_of(attempt) + " is suspended; a queue may hold it"};
    }
    if (ready + count_of(child, "status", "succeeded") >= wanted) {
      return {.action = JobAction::kReportProgress, .holds = true, .reason = "PodsReady", .message = pods};
    }
    return observe_pending(attempt, pods);
  }

  JobStep observe_pending(const Attempt& attempt, const std::string& pods) const {
    if (!facts_.unschedulable) {
      return {.action = JobAction::kReadPods};
    }
    if (!facts_.unschedulable->empty()) {
      return {.action = JobAction::kReportProgress,
              .reason = "Unschedulable",
              .message = pods + ": " + *facts_.unschedulable};
    }
    // Pods that are placed but do not start may wait for a plan that was deleted, and would wait forever.
    const std::optional<Clock::WallTime> began = parse_time(attempt.start_time);
    if (!facts_.restored && began && facts_.now - *began >= kPollInterval) {
      return {.action = JobAction::kRestoreChildren};
    }
    const bool taken = facts_.restored && !facts_.restored->empty();
    return {.action = JobAction::kReportProgress,
            .after = kPollInterval,
            .reason = taken ? "NameTaken" : "PodsPending",
            .message = taken ? *facts_.restored : pods};
  }

  // After an attempt that ended without success.
  JobStep follow(const Attempt& attempt) const {
    if (attempt.outcome == Outcome::kSuspended) {
      return begin(attempt.expandable_segments, attempt.shared_memory);
    }
    if (!facts_.remediation) {
      if (const std::string problems = this->problems(); !problems.empty()) {
        return {.action = JobAction::kFail,
                .reason = "InvalidJob",
                .message = "the job is invalid and is not started again: " + problems};
      }
      return {.action = JobAction::kDecideRemediation};
    }
    if (!facts_.remediation->restart) {
      return {.action = JobAction::kFail,
              .reason = facts_.remediation->reason,
              .message = facts_.remediation->message};
    }
    if (!status_.is_true("Restarting")) {
      return {.action = JobAction::kAnnounceRestart};
    }
    return begin(facts_.remediation->expandable_segments, facts_.remediation->shared_memory);
  }

  // Nothing: no pod is left.
  std::optional<JobStep> wait_for_pods(const std::string& what, const WhichPods& which) const {
    if (!facts_.remaining_pods) {
      return JobStep{.action = JobAction::kFindPods, .which = which};
    }
    if (facts_.remaining_pods->count == 0) {
      return std::nullopt;
    }
    return JobStep{.action = JobAction::kWaitForPods,
                   .reason = facts_.remaining_pods->stuck ? "PodsStuck" : "WaitingForPods",
                   .message = what + ": " + facts_.remaining_pods->message};
  }

  bool is_ours(const Json& child) const { return is_controlled_by(child, uid_); }
  bool runs() const {
    return !status_.attempts.empty() && status_.attempts.back().outcome == Outcome::kRunning;
  }
  std::string child_of(const Attempt& attempt) const { return child_name(job_.name, attempt.number); }
  // A job that the webhooks have not seen may be invalid. Empty for a valid one.
  std::string problems() const { return crds::to_string(crds::validate(job_)); }

  const JobFacts& facts_;
  const crds::TrainingJob& job_;
  const crds::JobStatus& status_;
  const std::string uid_;
};

}  // namespace

RequeueAfter time_to_deadline(const JobFacts& facts) {
  const std::optional<Clock::WallTime> began = parse_time(facts.status->start_time);
  const std::int64_t limit = facts.job->spec.active_deadline_seconds;
  if (limit == 0 || !began || is_over(*facts.status) || is_being_deleted(*facts.job)) {
    return std::nullopt;
  }
  return time_until(*began + seconds(limit), facts.now);
}

JobStep plan_next(const JobFacts& facts) {
  return Planner(facts).next();
}

}  // namespace plimsoll::controllers
