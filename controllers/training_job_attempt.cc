// Members of Pass: the children of an attempt, from their creation to the record of how they ended.
#include <algorithm>
#include <set>
#include <utility>

#include "controllers/attempt_record.h"
#include "controllers/training_job_steps.h"

namespace plimsoll::controllers {

using crds::Attempt;
using crds::Outcome;
using kube::EventType;
using std::chrono::milliseconds;

Result<Step> Pass::watch(Attempt& attempt) {
  if (earlier_job_runs(attempt)) {
    if (const Result<void> removed = remove_jobs_before(attempt.number); !removed) {
      return removed.error();
    }
  }
  if (const kube::SharedObject cached = with_.find_job(key_of_child(attempt))) {
    const Json child = cached.tree();
    if (is_controlled_by(child, uid())) {
      return attempt.start_time.empty() ? started(attempt, child) : look_at(attempt, child);
    }
  }
  if (attempt.start_time.empty()) {
    return make_children_of(attempt);
  }
  // The cache may lag behind what we made.
  const Result<Json> child = with_.client->get(kJobs, job_.namespace_name, child_of(attempt), call_);
  if (child && is_controlled_by(*child, uid())) {
    return look_at(attempt, *child);
  }
  if (!child && child.error().code != ErrorCode::kNotFound) {
    return child.error();
  }
  record_end(attempt, Outcome::kInfrastructureFailure, "the Job " + child_of(attempt) + " was deleted",
             now());
  return ended(attempt);
}

// What is written in the API server is what this pass has seen: no child may be made upon a stale copy, for
// the attempt may have been made, ended and cleared away since.
Result<void> Pass::is_current() {
  const Result<Json> live = with_.client->get(kTrainingJobs, job_.namespace_name, job_.name, call_);
  if (!live) {
    return live.error();
  }
  const auto same = [&](const char* field) {
    return text_member(*live, {"metadata", field}) == text_member(object_, {"metadata", field});
  };
  if (!same("uid") || !same("resourceVersion")) {
    return Error(ErrorCode::kConflict, "the job has changed since it was read");
  }
  return {};
}

Result<AttemptChildren> Pass::children_of(const Attempt& attempt) {
  if (!plan_) {
    Result<AttemptPlan> plan = make_plan(attempt);
    if (!plan) {
      return plan.error();
    }
    plan_ = *std::move(plan);
  }
  Result<AttemptChildren> children = make_children(job_, attempt, plan_->text);
  if (!children &&
      children.error().code == ErrorCode::kTooLarge) {  // without the plan trainers can still be run
    tell(EventType::kWarning, "PlanTooLarge", children.error().message);
    children = make_children(job_, attempt, "{}");
  }
  return children;
}

Result<Step> Pass::make_children_of(Attempt& attempt) {
  if (const Result<void> current = is_current(); !current) {
    return current.error();
  }
  // An operator that died here may have made the Job already; then its pods are this attempt's.
  const Result<Json> there = with_.client->get(kJobs, job_.namespace_name, child_of(attempt), call_);
  if (!there && there.error().code != ErrorCode::kNotFound) {
    return there.error();
  }
  if (there && is_controlled_by(*there, uid())) {
    return started(attempt, *there);
  }
  // The begin of the attempt has waited, but its Job may have been made and deleted since.
  const bool orphan = there && !has_owner(*there);
  Result<std::optional<Step>> wait = wait_for(
      "attempt " + std::to_string(attempt.number) + " starts when the pods of earlier attempts are gone",
      {.except_job_uid = orphan ? text_member(*there, {"metadata", "uid"}) : ""});
  if (!wait) {
    return wait.error();
  }
  if (*wait) {
    return **wait;
  }
  // Somebody may have changed the job since the attempt began.
  if (const std::string problems = this->problems(); !problems.empty()) {
    record_end(attempt, Outcome::kUserError, "the job is invalid: " + problems, now());
    return ended(attempt);
  }
  const Result<AttemptChildren> children = children_of(attempt);
  if (!children) {
    return children.error();
  }
  Result<Json> made = children_.create(kConfigMaps, children->plan);
  if (made) {
    made = children_.create(kServices, children->service);
  }
  if (made) {
    made = children_.create(kJobs, children->job);
  }
  if (made) {
    return started(attempt, *made);
  }
  const Error& error = made.error();
  if (error.code == ErrorCode::kAlreadyExists) {
    return name_taken(attempt, error);
  }
  if (error.code == ErrorCode::kInvalid) {  // it will be wrong again
    record_end(attempt, Outcome::kUserError, "the API server refused the job's pods: " + error.message,
               now());
    return ended(attempt);
  }
  if (error.code == ErrorCode::kForbidden) {  // a quota, or a policy of the namespace
    set("Running", false, "Forbidden", error.message);
    if (!(status_ == written_)) {
      tell(EventType::kWarning, "Forbidden", error.message);
    }
    if (const Result<void> written = write(); !written) {
      return written.error();
    }
    return Step{.after = kLookAgain};
  }
  return error;
}

Result<Step> Pass::started(Attempt& attempt, const Json& child) {
  attempt.start_time = text_member(child, {"metadata", "creationTimestamp"}, now());
  if (status_.start_time.empty()) {
    status_.start_time = attempt.start_time;
  }
  status_.plan_name = child_of(attempt) + "-plan";
  if (const Result<void> written = write(); !written) {
    return written.error();
  }
  return Step();  // the Job's own changes bring us back
}

Result<Step> Pass::look_at(Attempt& attempt, const Json& child) {
  const JobEnd end = end_of(child);
  if (end != JobEnd::kNone) {
    Result<std::vector<Json>> pods = all_pods(attempt, child);
    if (!pods) {
      return pods.error();
    }
    record_end(attempt, child, *pods, now());
    return ended(attempt);
  }
  const auto count = [&](const char* name) {
    return JsonView(member(child, {"status", name})).integer().value_or(0);
  };
  const std::int64_t wanted = JsonView(member(child, {"spec", "parallelism"})).integer().value_or(0);
  const Result<std::optional<Step>> wait = wait_for_pods_of(attempt, child);
  if (!wait) {
    return wait.error();
  }
  if (*wait) {
    return **wait;
  }
  Next after;
  const std::string pods =
      std::to_string(count("ready")) + " of " + std::to_string(wanted) + " pods are ready";
  if (member(child, {"spec", "suspend"}) == Json(true)) {
    set("Running", false, "JobSuspended",
        "the Job " + child_of(attempt) + " is suspended; a queue may hold it");
  } else if (count("ready") + count("succeeded") >= wanted) {
    if (!status_.is_true("Running")) {
      tell(EventType::kNormal, "Running", "attempt " + std::to_string(attempt.number) + ": " + pods);
    }
    set("Running", true, "PodsReady", pods);
  } else {
    const std::string why = unschedulable(with_.find_pods(key_of_child(attempt)));
    set("Running", false, why.empty() ? "PodsPending" : "Unschedulable",
        why.empty() ? pods : pods + ": " + why);
    if (why.empty()) {
      if (const Result<void> restored = restore_what_pods_need(attempt); !restored) {
        if (restored.error().code != ErrorCode::kAlreadyExists) {
          return restored.error();
        }
        set("Running", false, "NameTaken", restored.error().message);
      }
      after = kLookAgain;
    }
  }
  if (const Result<void> written = write(); !written) {
    return written.error();
  }
  return Step{.after = after};
}

// Pods that are placed but do not start may wait for a plan that somebody deleted, and would for ever.
Result<void> Pass::restore_what_pods_need(const Attempt& attempt) {
  const std::optional<Clock::WallTime> began = parse_time(attempt.start_time);
  if (!began || with_.clock->wall_now() - *began < kLookAgain) {
    return {};
  }
  const std::string name = child_of(attempt);
  const auto is_missing = [&](const kube::Resource& resource, const std::string& of) {
    const Result<Json> there = with_.client->get(resource, job_.namespace_name, of, call_);
    return !there && there.error().code == ErrorCode::kNotFound;
  };
  const bool plan = is_missing(kConfigMaps, name + "-plan");
  const bool service = is_missing(kServices, name);
  if (!plan && !service) {
    return {};
  }
  const Result<AttemptChildren> children = children_of(attempt);
  if (!children) {
    return children.error();
  }
  Result<Json> made = plan ? children_.create(kConfigMaps, children->plan) : Json();
  if (made && service) {
    made = children_.create(kServices, children->service);
  }
  if (!made) {
    return made.error().within("recreate deleted children");
  }
  tell(EventType::kWarning, "Restored",
       std::string(plan ? "the plan" : "the Service") + " of attempt " + std::to_string(attempt.number) +
           " had been deleted, and was made again");
  return {};
}

// Those that the API server has now, those that the cache still has, and those that have gone. Of this very
// Job: a deleted TrainingJob of the same name had pods of the same labels.
Result<std::vector<Json>> Pass::all_pods(const Attempt& attempt, const Json& child) {
  kube::ListOptions what;
  what.label_selector = pods_selector(job_.name, attempt.number);
  const Result<Json> list = with_.client->list(kPods, job_.namespace_name, what, call_);
  if (!list) {
    return list.error().within("list the attempt's pods");
  }
  std::vector<Json> pods;
  std::set<std::string> known;
  const std::string owner = text_member(child, {"metadata", "uid"});
  const auto add = [&](const Json& pod) {
    if (is_controlled_by(pod, owner) && known.insert(text_member(pod, {"metadata", "uid"})).second) {
      pods.push_back(pod);
    }
  };
  for (const Json& pod : member(*list, {"items"})) {
    add(pod);
  }
  for (const Json& pod : with_.find_pods(key_of_child(attempt))) {
    add(pod);
  }
  for (const Json& pod : with_.departed_pods(key_of_child(attempt))) {
    add(pod);
  }
  return pods;
}

// The attempt's end, with all that was seen of it, in the status.
Result<Step> Pass::ended(Attempt& attempt, const char* reason) {
  set("Running", false, reason != nullptr ? reason : name_of(attempt.outcome), attempt.message);
  if (attempt.outcome == Outcome::kSucceeded) {
    status_.completion_time = attempt.completion_time;
    set("Succeeded", true, "AttemptSucceeded",
        "attempt " + std::to_string(attempt.number) + " trained to its end");
    tell(EventType::kNormal, "Succeeded",
         "attempt " + std::to_string(attempt.number) + " trained to its end");
  } else {
    const bool out_of_memory =
        attempt.outcome == Outcome::kCudaOutOfMemory || attempt.outcome == Outcome::kHostOutOfMemory;
    if (out_of_memory) {
      set("OOMDetected", true, name_of(attempt.outcome), attempt.message);
    }
    if (attempt.outcome == Outcome::kPreempted) {
      set("Preempted", true, "PreemptedPod", attempt.message);
    }
    tell(EventType::kWarning,
         reason != nullptr                        ? reason
         : out_of_memory                          ? "OOMDetected"
         : attempt.outcome == Outcome::kPreempted ? "Preempted"
                                                  : "AttemptFailed",
         "attempt " + std::to_string(attempt.number) + ", " + name_of(attempt.outcome) + ": " +
             attempt.message);
  }
  if (const Result<void> written = write(); !written) {
    return written.error();
  }
  if (with_.observer != nullptr) {
    with_.observer->ended(job_, attempt);
    if (attempt.outcome == Outcome::kSucceeded) {
      with_.observer->finished(job_, true);
    }
  }
  return Step{.again = true};
}

// The object that has the name stays; the next attempt has the next name.
Result<Step> Pass::name_taken(Attempt& attempt, const Error& error) {
  record_end(attempt, Outcome::kInfrastructureFailure, error.message, now());
  return ended(attempt, "NameTaken");
}

// How long until the pods are looked for again: soon at first, as most go within seconds. No watch tells of
// pods whose Job is gone.
milliseconds Pass::poll_interval() const {
  std::string since = text_member(object_, {"metadata", "creationTimestamp"});
  for (const Attempt& attempt : status_.attempts) {
    since = std::max(since, attempt.completion_time);  // RFC 3339 in UTC sorts as text
  }
  const std::optional<Clock::WallTime> began = parse_time(since);
  const auto waited =
      began ? std::chrono::duration_cast<milliseconds>(with_.clock->wall_now() - *began) : milliseconds(0);
  return std::clamp<milliseconds>(waited / 4, std::chrono::seconds(1), kLookAgain);
}

// By the cache.
bool Pass::earlier_job_runs(const Attempt& attempt) const {
  return std::any_of(status_.attempts.begin(), status_.attempts.end(), [&](const Attempt& other) {
    if (other.number >= attempt.number) {
      return false;
    }
    const kube::SharedObject cached = with_.find_job(key_of_child(other));
    const Json child = cached ? cached.tree() : Json();
    return !child.isNull() && is_controlled_by(child, uid()) && end_of(child) == JobEnd::kNone &&
           member(child, {"metadata", "deletionTimestamp"}).isNull();
  });
}

// A Job of an attempt that is over should have ended. One that has not was created by an operator that had
// been stopped for longer than its lease, on what it had read before. Numbers only grow, so that a stale copy
// of the TrainingJob cannot mistake the running attempt for an earlier one.
Result<void> Pass::remove_jobs_before(std::int64_t next) {
  kube::ListOptions what;
  what.label_selector = pods_selector(job_.name);
  const Result<Json> jobs = with_.client->list(kJobs, job_.namespace_name, what, call_);
  if (!jobs) {
    return jobs.error().within("list the Jobs of earlier attempts");
  }
  for (const Json& child : member(*jobs, {"items"})) {
    const std::string name = text_member(child, {"metadata", "name"});
    bool earlier = false;
    for (const Attempt& attempt : status_.attempts) {
      earlier = earlier || (attempt.number < next && child_of(attempt) == name);
    }
    if (!earlier || end_of(child) != JobEnd::kNone || !is_controlled_by(child, uid())) {
      continue;
    }
    if (const Result<void> removed = children_.remove(kJobs, name); !removed) {
      return removed.error();
    }
  }
  return {};
}

Result<std::optional<Step>> Pass::wait_for_earlier_pods(std::int64_t next) {
  if (const Result<void> removed = remove_jobs_before(next); !removed) {
    return removed.error();
  }
  return wait_for("attempt " + std::to_string(next) + " begins when the pods of earlier attempts are gone",
                  {});
}

// While an attempt's Job ends or is deleted, its pods may take their time, or a lost node may keep them.
Result<std::optional<Step>> Pass::wait_for_pods_of(const Attempt& attempt, const Json& child) {
  const std::int64_t terminating = JsonView(member(child, {"status", "terminating"})).integer().value_or(0);
  const bool ending = !member(child, {"metadata", "deletionTimestamp"}).isNull() || terminating > 0;
  return ending ? wait_for("attempt " + std::to_string(attempt.number) + " waits for pods that terminate",
                           {.terminating_of_job_uid = text_member(child, {"metadata", "uid"})})
                : std::optional<Step>();
}

// Nothing: there are none to wait for.
Result<std::optional<Step>> Pass::wait_for(const std::string& what, const WhichPods& which) {
  const Result<RemainingPods> pods =
      remaining_pods(*with_.client, object_, which, with_.clock->wall_now(), call_);
  if (!pods) {
    return pods.error();
  }
  if (pods->count == 0) {
    return std::optional<Step>();
  }
  const char* reason = pods->stuck ? "PodsStuck" : "WaitingForPods";
  const std::string message = what + ": " + pods->message;
  const crds::Condition* before = status_.find("Running");
  if (before == nullptr || before->status == "True" || before->reason != reason) {
    tell(pods->stuck ? EventType::kWarning : EventType::kNormal, reason, message);
  }
  set("Running", false, reason, message);
  if (const Result<void> written = write(); !written) {
    return written.error();
  }
  return std::optional(Step{.after = poll_interval()});
}

}  // namespace plimsoll::controllers
