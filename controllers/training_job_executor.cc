#include "controllers/training_job_executor.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/budget.h"
#include "base/json/view.h"
#include "base/log.h"
#include "controllers/attempt_plan.h"
#include "controllers/attempt_pods.h"
#include "controllers/child_writer.h"
#include "controllers/gpu_hours.h"
#include "controllers/job_children.h"
#include "controllers/job_events.h"
#include "controllers/job_record.h"
#include "crds/request_id.h"
#include "estimator/provisioner/patch.h"
#include "estimator/provisioner/provisioner.h"
#include "remediation/attempt_record.h"
#include "remediation/remediation_note.h"

namespace plimsoll::controllers {
namespace {

using crds::Attempt;
using crds::Outcome;
using kube::EventType;
using std::chrono::milliseconds;
using std::chrono::seconds;

// For all decisions of a pass. An admission has less, but one job must not occupy a worker for long.
constexpr seconds kDecisionTime{30};
// Far more than the longest chain of actions, so that a pass always ends.
constexpr int kMaxActions = 64;
// The children of the last attempts are kept, for their logs.
constexpr std::int64_t kKeptAttempts = 3;
// Of spec.trainers, by the schema.
constexpr std::int64_t kMaxTrainers = 65'536;
constexpr std::size_t kMaxGpuModelName = 63;

Error cancelled() {
  return Error(ErrorCode::kCancelled, "the operator stops");
}

std::string gpus_text(const Attempt& attempt) {
  return std::to_string(attempt.trainers) + " x " + (attempt.gpu_model.empty() ? "GPU" : attempt.gpu_model);
}

std::string text_of(const Attempt& attempt) {
  return "attempt " + std::to_string(attempt.number);
}

std::optional<std::int64_t> positive(std::int64_t count) {
  return count > 0 ? std::optional(count) : std::nullopt;
}

bool is_out_of_memory(Outcome outcome) {
  return outcome == Outcome::kCudaOutOfMemory || outcome == Outcome::kHostOutOfMemory;
}

class TrainingJobExecutor {
 public:
  TrainingJobExecutor(const PassContext& context, const Json& object, crds::TrainingJob job)
      : context_(context),
        call_{.field_manager = "plimsoll.dev/trainingjob", .stop = context.stop},
        record_(context, object, std::move(job), call_),
        children_(*context.client, record_.object(), call_) {}

  // Until the planner has nothing to do.
  Result<RequeueAfter> run() {
    reset_facts();
    for (int i = 0; i < kMaxActions && !ended_; ++i) {
      facts_.now = context_.clock->wall_now();
      if (const Result<void> done = carry_out(plan_next(facts_)); !done) {
        return done.error();
      }
    }
    const RequeueAfter after = ended_.value_or(milliseconds(0));
    const RequeueAfter deadline = time_to_deadline(facts_);
    return after && deadline ? std::min(after, deadline) : after ? after : deadline;
  }

 private:
  Result<void> carry_out(const JobStep& step) {
    switch (step.action) {
      case JobAction::kNothing: ended_.emplace(); break;
      case JobAction::kWait: return end_pass(step.after);
      case JobAction::kDeleteJob: ended_.emplace(); return record_.remove();
      case JobAction::kSuspend: return suspend();
      case JobAction::kWaitForPods: return wait_for_pods(step);
      case JobAction::kRecordStart: return record_start(step.child);
      case JobAction::kReportProgress: return report_progress(step);
      case JobAction::kReadChild: return read_child();
      case JobAction::kReadPods:
        facts_.unschedulable = remediation::unschedulable(context_.find_pods(key_of_child(attempt())));
        break;
      case JobAction::kFindPods: return find_pods(step.which);
      case JobAction::kCheckCurrent: facts_.is_current = true; return record_.check_current();
      case JobAction::kRemoveEarlierJobs: return remove_earlier_jobs(step.attempt);
      case JobAction::kResume:
        record_.set("Suspended", false, "Resumed", "the job may run");
        record_.event(EventType::kNormal, "Resumed", "the job may run again");
        break;
      case JobAction::kSize: return size();
      case JobAction::kBeginAttempt: return begin_attempt(step);
      case JobAction::kRefuseAttempt: return refuse_attempt(step.message);
      case JobAction::kCreateChildren: return create_children();
      case JobAction::kRestoreChildren: return restore_children();
      case JobAction::kRecordEnd: return record_end(step.child);
      case JobAction::kRecordOutcome: return record_outcome(step.outcome, step.message);
      case JobAction::kDecideRemediation: return decide_remediation();
      case JobAction::kAnnounceRestart: return announce_restart();
      case JobAction::kFailAtDeadline: return fail_at_deadline();
      case JobAction::kFail: return fail(step.reason, step.message);
    }
    return {};
  }

  bool runs() const {
    const std::vector<Attempt>& attempts = record_.status.attempts;
    return !attempts.empty() && attempts.back().outcome == Outcome::kRunning;
  }

  // Facts about one attempt do not hold for the next.
  void reset_facts() {
    facts_ = JobFacts{.job = &record_.job(), .status = &record_.status};
    if (!runs()) {
      return;
    }
    for (const Attempt& other : record_.status.attempts) {
      const kube::SharedObject cached = context_.find_job(key_of_child(other));
      const Json child = cached ? cached.tree() : Json();
      if (child.isNull() || !is_controlled_by(child, record_.uid())) {
        continue;
      }
      if (other.number == attempt().number) {
        facts_.cached_child = child;
      } else if (remediation::end_of(child) == remediation::JobEnd::kNone &&
                 member(child, {"metadata", "deletionTimestamp"}).isNull()) {
        facts_.earlier_job_runs = true;
      }
    }
  }

  // Writes the status.
  Result<void> end_pass(RequeueAfter after) {
    ended_ = after;
    return record_.write();
  }

  Result<void> read_child() {
    Result<Json> child = context_.client->get(kJobs, job().namespace_name, child_of(attempt()), call_);
    if (!child && child.error().code != ErrorCode::kNotFound) {
      return child.error();
    }
    facts_.live_child = child ? *std::move(child) : Json();
    return {};
  }

  Result<void> find_pods(const WhichPods& which) {
    Result<RemainingPods> pods =
        remaining_pods(*context_.client, record_.object(), which, context_.clock->wall_now(), call_);
    if (!pods) {
      return pods.error();
    }
    facts_.remaining_pods = *std::move(pods);
    return {};
  }

  // A Job of an attempt that is over should have ended. One that has not was created from a stale copy, by an
  // operator that had been stopped for longer than its lease. Numbers only grow, so that a stale copy of the
  // TrainingJob cannot mistake the running attempt for an earlier one.
  Result<void> remove_earlier_jobs(std::int64_t before) {
    kube::ListOptions what;
    what.label_selector = pods_selector(job().name);
    const Result<Json> jobs = context_.client->list(kJobs, job().namespace_name, what, call_);
    if (!jobs) {
      return jobs.error().within("list the Jobs of earlier attempts");
    }
    for (const Json& child : member(*jobs, {"items"})) {
      const std::string name = text_member(child, {"metadata", "name"});
      const std::vector<Attempt>& attempts = record_.status.attempts;
      const bool earlier = std::any_of(attempts.begin(), attempts.end(), [&](const Attempt& attempt) {
        return attempt.number < before && child_of(attempt) == name;
      });
      if (!earlier || remediation::end_of(child) != remediation::JobEnd::kNone ||
          !is_controlled_by(child, record_.uid())) {
        continue;
      }
      if (const Result<void> removed = children_.remove(kJobs, name); !removed) {
        return removed.error();
      }
    }
    facts_.earlier_jobs_removed = true;
    return {};
  }

  // The attempt's pods: those that the API server has now, those that the cache still has, and those that
  // were deleted. Only pods of this Job: a deleted TrainingJob of the same name had pods with the same
  // labels.
  Result<std::vector<Json>> all_pods(const Json& child) {
    kube::ListOptions what;
    what.label_selector = pods_selector(job().name, attempt().number);
    const Result<Json> list = context_.client->list(kPods, job().namespace_name, what, call_);
    if (!list) {
      return list.error().within("list the attempt's pods");
    }
    std::vector<Json> pods;
    std::set<std::string> known;
    const std::string owner = text_member(child, {"metadata", "uid"});
    const auto add = [&](const auto& found) {
      for (const Json& pod : found) {
        if (is_controlled_by(pod, owner) && known.insert(text_member(pod, {"metadata", "uid"})).second) {
          pods.push_back(pod);
        }
      }
    };
    add(member(*list, {"items"}));
    add(context_.find_pods(key_of_child(attempt())));
    add(context_.departed_pods(key_of_child(attempt())));
    return pods;
  }

  Budget& budget() {
    if (!budget_) {
      budget_.emplace(Budget::Limits{.deadline = std::chrono::steady_clock::now() + kDecisionTime,
                                     .stop = context_.stop,
                                     .memory = context_.decision_memory});
    }
    return *budget_;
  }

  // Before a decision: a job that names no mode has it in its spec only once the webhook or size() has sized it.
  Result<void> settle_mode() {
    std::optional<crds::ProvisioningMode> of_namespace;
    if (!job().spec.provisioning.mode_given && !context_.policy.advice_only) {
      const Result<Json> found = context_.client->get(kNamespaces, {}, job().namespace_name, call_);
      if (found) {
        of_namespace = crds::mode_of_label(text_member(*found, {"metadata", "labels", crds::kModeKey}));
      } else if (found.error().code != ErrorCode::kNotFound) {
        return found.error().within("read the mode of the job's namespace");
      }
    }
    record_.settle_mode(of_namespace);
    return {};
  }

  // Sizes a job that the webhook has not seen.
  Result<void> size() {
    facts_.sized = true;
    if (Result<void> known = settle_mode(); !known) {
      return known;
    }
    Result<void> done = decide_size();
    const std::string advice =
        text_member(record_.object(), {"metadata", "annotations", crds::kReasonAnnotation});
    if (done && !advice.empty() && job().spec.provisioning.mode == crds::ProvisioningMode::kOff) {
      record_.event(EventType::kNormal, "Recommended", advice);
    }
    return done;
  }

  Result<void> decide_size() {
    const Json& annotations = member(record_.object(), {"metadata", "annotations"});
    if (text_member(annotations, {crds::kProvisioningAnnotation}) == "disabled" ||
        !member(annotations, {crds::kDecisionAnnotation}).isNull()) {
      return {};
    }
    crds::TrainingJob resolved = job();
    const Result<estimator::SharedGraph> graph =
        estimator::resolve_model(resolved, context_.models, &budget());
    if (!graph) {
      record_.event(EventType::kWarning, "EstimateFailed",
                    "the job keeps its trainers: " + graph.error().message);
      return {};
    }
    const std::shared_ptr<const estimator::ClusterView> cluster = context_.cluster->get();
    const estimator::Provision provision =
        estimator::provision({.job = &resolved,
                              .graph = graph->get(),
                              .gpus = &cluster->gpus,
                              .profile = cluster->profile_of(job().namespace_name, job().spec.model.family),
                              .method = estimator::Method::kPlimsoll,
                              .budget = &budget(),
                              .suggest = true,
                              .min_share_of_asked = context_.policy.min_share_of_asked,
                              .swap_training = context_.policy.gates.enabled(crds::Feature::kSwapTraining)});
    if (context_.stop.stop_requested()) {
      return cancelled();
    }
    if (estimator::rejects(job().spec.provisioning, provision)) {
      return refuse_attempt(provision.reason + "; provisioning.onUnfit is Deny");
    }
    if (!provision.decided()) {
      record_.event(EventType::kWarning,
                    provision.event_reason == "NoFittingGPU" ? "NoFittingGPU" : "EstimateFailed",
                    "the job keeps its trainers: " + provision.reason);
      return {};
    }
    return record_.patch(estimator::patch_for(job(), provision));
  }

  crds::Attempt new_attempt() const {
    const std::vector<Attempt>& attempts = record_.status.attempts;
    Attempt attempt;
    attempt.number = attempts.empty() ? 0 : attempts.back().number + 1;
    if (!attempts.empty()) {
      attempt.avoid_nodes = attempts.back().avoid_nodes;
    }
    attempt.gpu_model = job().spec.trainers.gpu_model;
    attempt.trainers = job().spec.trainers.replicas;
    attempt.per_node = job().spec.trainers.per_node;
    return attempt;
  }

  // Writes the attempt into the status; its children follow.
  Result<void> begin_attempt(const JobStep& step) {
    Attempt attempt = new_attempt();
    attempt.expandable_segments = step.expandable_segments;
    if (const Result<void> made = make_plan(attempt); !made) {
      return made.error();
    }
    const Result<std::vector<crds::BatchSplit>> splits =
        crds::batch_splits(job().spec.training, attempt.trainers);
    if (!splits && plan_->swap.isNull()) {
      return refuse_attempt(splits.error().message);
    }
    attempt.swap_plan = !plan_->swap.isNull();
    attempt.predicted_host_memory = plan_->predicted_host_memory;
    if (plan_->host_memory > Bytes{}) {
      attempt.host_memory = plan_->host_memory;
    }
    attempt.shared_memory = step.shared_memory;
    if (plan_->shared_memory > attempt.shared_memory.value_or(Bytes{})) {
      attempt.shared_memory = plan_->shared_memory;
    }
    attempt.batch_size = plan_->batch.batch_size;
    attempt.accumulation = plan_->batch.accumulation;
    attempt.estimated = plan_->upper_bound;
    attempt.learned = plan_->learned;
    record_request();

    crds::JobStatus& status = record_.status;
    status.estimate = plan_->estimate;
    status.throughput = plan_->throughput;
    status.swap_plan = plan_->swap;
    status.global_batch = positive(plan_->global_batch);
    status.next_attempt_time.clear();
    record_.set(
        "Estimated", plan_->problem.empty(), plan_->reason,
        plan_->upper_bound ? "a trainer takes at most " + to_string(*plan_->upper_bound) : plan_->problem);
    const bool decided =
        !member(record_.object(), {"metadata", "annotations", crds::kDecisionAnnotation}).isNull();
    if (decided || plan_->upper_bound) {
      record_.set("Provisioned", true, "Provisioned",
                  gpus_text(attempt) + (plan_->how.empty() ? "" : ", by " + plan_->how));
    } else {
      record_.set("Provisioned", false, plan_->reason,
                  gpus_text(attempt) + ", as requested: nothing was decided; " + plan_->problem);
    }
    if (status.find("Restarting") != nullptr) {
      record_.set("Restarting", false, "Restarted", text_of(attempt) + " began");
    }
    record_.set("Running", false, "Starting", "the attempt's pods are being created");
    if (attempt.number > 0) {
      ++status.restarts;
    }
    record_.event(
        EventType::kNormal, "AttemptStarted",
        text_of(attempt) + " on " + gpus_text(attempt) + (plan_->how.empty() ? "" : ", by " + plan_->how));
    status.attempts.push_back(attempt);
    if (const Result<void> written = record_.write(); !written) {
      return written.error();
    }
    if (context_.observer != nullptr) {
      context_.observer->began(job(), attempt);
    }
    remove_children(attempt.number - kKeptAttempts);
    reset_facts();
    return {};
  }

  Result<void> refuse_attempt(const std::string& message) {
    record_.status.attempts.push_back(new_attempt());
    return record_outcome(Outcome::kUserError, message);
  }

  // The annotation came with the job, perhaps from a user's manifest: a value that the schema of the status
  // would refuse is ignored.
  void record_request() {
    const Result<Json> json =
        parse_json(text_member(record_.object(), {"metadata", "annotations", crds::kRequestedAnnotation}));
    const Json request = json ? *json : Json();
    crds::JobStatus& status = record_.status;
    const std::optional<std::int64_t> replicas = JsonView(member(request, {"replicas"})).integer();
    const bool valid = replicas && *replicas >= 1 && *replicas <= kMaxTrainers;
    status.requested_trainers = valid ? replicas : status.requested_trainers;
    if (!valid && job().spec.trainers.replicas_given && !status.requested_trainers) {
      status.requested_trainers = job().spec.trainers.replicas;
    }
    const std::string gpu_model = text_member(request, {"gpuModel"});
    if (!gpu_model.empty() && gpu_model.size() <= kMaxGpuModelName) {
      status.requested_gpu_model = gpu_model;
    }
    if (status.requested_trainers) {
      status.requested_global_batch =
          positive(crds::global_batch_of(job().spec.training, *status.requested_trainers));
      status.gpus_saved = *status.requested_trainers - job().spec.trainers.replicas;
    }
  }

  // Sets plan_.
  Result<void> make_plan(const crds::Attempt& attempt) {
    crds::TrainingJob resolved = job();
    const Result<estimator::SharedGraph> graph =
        estimator::resolve_model(resolved, context_.models, &budget());
    const std::shared_ptr<const estimator::ClusterView> cluster = context_.cluster->get();
    plan_ = plan_attempt(resolved, attempt, graph ? graph->get() : nullptr, *cluster, &budget(),
                         record_.status.attempts);
    if (!graph) {
      plan_->reason = "ModelUnknown";
      plan_->problem = graph.error().message;
    }
    return context_.stop.stop_requested() ? Result<void>(cancelled()) : Result<void>();
  }

  Result<AttemptChildren> make_children_of_attempt() {
    if (!plan_) {
      if (const Result<void> made = make_plan(attempt()); !made) {
        return made.error();
      }
    }
    AttemptInputs inputs{.plan = plan_->text,
                         .swap_plan = plan_->swap_text,
                         .host_memory = plan_->host_memory,
                         .shared_memory = attempt().shared_memory.value_or(Bytes{})};
    Result<AttemptChildren> children = make_children(job(), attempt(), inputs);
    if (!children && children.error().code == ErrorCode::kTooLarge) {  // trainers can run without the plan
      record_.event(EventType::kWarning, "PlanTooLarge", children.error().message);
      inputs.plan = "{}";
      children = make_children(job(), attempt(), inputs);
    }
    return children;
  }

  Result<void> create_children() {
    const Result<AttemptChildren> children = make_children_of_attempt();
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
      return record_start(*made);
    }
    const Error& error = made.error();
    if (error.code == ErrorCode::kAlreadyExists) {
      // The object that has the name is not changed; the next attempt has another name.
      return record_outcome(Outcome::kInfrastructureFailure, error.message, "NameTaken");
    }
    if (error.code == ErrorCode::kInvalid) {  // it would be invalid again
      return record_outcome(Outcome::kUserError, "the API server refused the job's pods: " + error.message);
    }
    if (error.code != ErrorCode::kForbidden) {
      return error;
    }
    // A quota, or a policy of the namespace.
    record_.set("Running", false, "Forbidden", error.message);
    if (record_.has_changes()) {
      record_.event(EventType::kWarning, "Forbidden", error.message);
    }
    return end_pass(kPollInterval);
  }

  Result<void> record_start(const Json& child) {
    attempt().start_time = text_member(child, {"metadata", "creationTimestamp"}, record_.now());
    if (record_.status.start_time.empty()) {
      record_.status.start_time = attempt().start_time;
    }
    record_.status.plan_name = child_of(attempt()) + "-plan";
    return end_pass({});  // the Job's own changes wake the controller
  }

  Result<void> report_progress(const JobStep& step) {
    if (step.holds && !record_.status.is_true("Running")) {
      record_.event(EventType::kNormal, "Running", text_of(attempt()) + ": " + step.message);
    }
    record_.set("Running", step.holds, step.reason, step.message);
    return end_pass(step.after);
  }

  Result<void> wait_for_pods(const JobStep& step) {
    const crds::Condition* before = record_.status.find("Running");
    if (before == nullptr || before->status == "True" || before->reason != step.reason) {
      record_.event(facts_.remaining_pods->stuck ? EventType::kWarning : EventType::kNormal, step.reason,
                    step.message);
    }
    record_.set("Running", false, step.reason, step.message);
    return end_pass(poll_interval());
  }

  // Short at first, because most pods end within seconds. No watch reports pods whose Job is gone.
  std::chrono::milliseconds poll_interval() const {
    std::string since = text_member(record_.object(), {"metadata", "creationTimestamp"});
    for (const Attempt& attempt : record_.status.attempts) {
      since = std::max(since, attempt.completion_time);  // RFC 3339 in UTC sorts as text
    }
    const std::optional<Clock::WallTime> began = parse_time(since);
    const auto waited = began ? std::chrono::duration_cast<milliseconds>(context_.clock->wall_now() - *began)
                              : milliseconds(0);
    return std::clamp<milliseconds>(waited / 4, seconds(1), kPollInterval);
  }

  Result<void> restore_children() {
    facts_.restored.emplace();
    const std::string name = child_of(attempt());
    const auto is_missing = [&](const kube::Resource& resource, const std::string& of) {
      const Result<Json> there = context_.client->get(resource, job().namespace_name, of, call_);
      return !there && there.error().code == ErrorCode::kNotFound;
    };
    const bool plan = is_missing(kConfigMaps, name + "-plan");
    const bool service = is_missing(kServices, name);
    if (!plan && !service) {
      return {};
    }
    const Result<AttemptChildren> children = make_children_of_attempt();
    if (!children) {
      return children.error();
    }
    Result<Json> made = plan ? children_.create(kConfigMaps, children->plan) : Json();
    if (made && service) {
      made = children_.create(kServices, children->service);
    }
    if (!made) {
      const Error error = made.error().within("recreate deleted children");
      facts_.restored = error.message;
      return error.code == ErrorCode::kAlreadyExists ? Result<void>() : error;
    }
    record_.event(EventType::kWarning, "Restored",
                  std::string(plan ? "the plan" : "the Service") + " of " + text_of(attempt()) +
                      " had been deleted, and was created again");
    return {};
  }

  Result<void> record_end(const Json& child) {
    Result<std::vector<Json>> pods = all_pods(child);
    if (!pods) {
      return pods.error();
    }
    remediation::record_end(attempt(), child, *pods, record_.now(), *context_.patterns);
    return finish_attempt({});
  }

  Result<void> record_outcome(crds::Outcome outcome, const std::string& message,
                              const std::string& reason = {}) {
    remediation::record_end(attempt(), outcome, message, record_.now());
    return finish_attempt(reason);
  }

  // `reason`: for conditions and events; empty: the outcome's.
  Result<void> finish_attempt(const std::string& reason) {
    const Attempt ended = attempt();
    add_gpu_hours(record_.status, ended);
    const std::string outcome = name_of(ended.outcome);
    record_.set("Running", false, reason.empty() ? outcome : reason, ended.message);
    if (ended.outcome == Outcome::kSucceeded) {
      record_.status.completion_time = ended.completion_time;
      record_.set("Succeeded", true, "AttemptSucceeded", text_of(ended) + " trained to its end");
      record_.event(EventType::kNormal, "Succeeded", text_of(ended) + " trained to its end");
    } else {
      std::string event = "AttemptFailed";
      if (is_out_of_memory(ended.outcome)) {
        event = "OOMDetected";
        record_.set("OOMDetected", true, outcome, ended.message);
      } else if (ended.outcome == Outcome::kPreempted) {
        event = "Preempted";
        record_.set("Preempted", true, "PreemptedPod", ended.message);
      }
      record_.event(EventType::kWarning, reason.empty() ? event : reason,
                    text_of(ended) + ", " + outcome + ": " + ended.message);
    }
    if (const Result<void> written = record_.write(); !written) {
      return written.error();
    }
    if (context_.observer != nullptr) {
      context_.observer->ended(job(), ended);
      if (ended.outcome == Outcome::kSucceeded) {
        context_.observer->finished(job(), record_.status, true);
      }
    }
    reset_facts();
    return {};
  }

  Result<void> decide_remediation() {
    facts_.remediation = remediation::noted_remediation(record_.object(), attempt());
    if (facts_.remediation) {
      return {};
    }
    if (Result<void> known = settle_mode(); !known) {
      return known;
    }
    crds::TrainingJob resolved = job();
    const Result<estimator::SharedGraph> graph =
        estimator::resolve_model(resolved, context_.models, &budget());
    const bool will_not_change =
        !graph && (graph.error().code == ErrorCode::kNotFound || graph.error().code == ErrorCode::kInvalid ||
                   graph.error().code == ErrorCode::kTooLarge);
    if (!graph && !will_not_change) {
      return graph.error();  // the API server may have it next time
    }
    const std::shared_ptr<const estimator::ClusterView> cluster = context_.cluster->get();
    const crds::JobStatus& status = record_.status;
    remediation::Remediation decided =
        remediation::remediate({.job = &resolved,
                                .graph = graph ? graph->get() : nullptr,
                                .gpus = &cluster->gpus,
                                .profile = cluster->profile_of(job().namespace_name, job().spec.model.family),
                                .attempts = &status.attempts,
                                .restarts_counted = status.restarts_counted,
                                .restarts_uncounted = status.restarts - status.restarts_counted,
                                .min_share_of_asked = context_.policy.min_share_of_asked,
                                .swap_training = context_.policy.gates.enabled(crds::Feature::kSwapTraining),
                                .budget = &budget()});
    if (context_.stop.stop_requested()) {
      return cancelled();  // with more time the decision might be another
    }
    if (decided.restart) {
      const Json patch = remediation::with_note(record_.object(), decided, attempt());
      if (const Result<void> noted = record_.patch(patch); !noted) {
        return noted.error();
      }
    }
    facts_.remediation = std::move(decided);
    return {};
  }

  Result<void> announce_restart() {
    const remediation::Remediation& decided = *facts_.remediation;
    const Clock::WallTime ended = parse_time(attempt().completion_time).value_or(context_.clock->wall_now());
    if (decided.delay.count() > 0) {
      record_.status.next_attempt_time = format_time(ended + decided.delay);
    }
    if (decided.counts) {
      ++record_.status.restarts_counted;
    }
    record_.set("Restarting", true, decided.reason, decided.message);
    record_.event(EventType::kNormal, "Restarting", decided.message);
    if (job().spec.trainers.replicas != attempt().trainers ||
        job().spec.trainers.gpu_model != attempt().gpu_model) {
      record_.event(EventType::kNormal, "Resized", decided.message);
    }
    return record_.write();
  }

  // Ends the attempt that runs, if one does. Not written yet.
  Result<void> stop_attempt(crds::Outcome outcome, const std::string& message) {
    if (!runs()) {
      return {};
    }
    if (const Result<void> removed = children_.remove(kJobs, child_of(attempt())); !removed) {
      return removed.error();
    }
    remediation::record_end(attempt(), outcome, message, record_.now());
    add_gpu_hours(record_.status, attempt());
    return {};
  }

  // An attempt ends with its suspension: while the job is suspended its spec may change, and the plan with
  // it. The condition is written before the Job is deleted: whoever finds the Job gone then knows why, though
  // the job may have been resumed.
  Result<void> suspend() {
    if (!record_.status.is_true("Suspended")) {
      record_.event(EventType::kNormal, "Suspended", "spec.suspend is set");
    }
    if (record_.status.find("Running") != nullptr) {
      record_.set("Running", false, "Suspended", "spec.suspend is set");
    }
    record_.set("Suspended", true, "Suspended", "spec.suspend is set");
    if (const Result<void> written = record_.write(); !written) {
      return written.error();
    }
    if (const Result<void> stopped = stop_attempt(Outcome::kSuspended, "spec.suspend was set"); !stopped) {
      return stopped.error();
    }
    if (job().spec.suspend) {
      return end_pass({});
    }
    reset_facts();  // it was resumed meanwhile
    return record_.write();
  }

  Result<void> fail_at_deadline() {
    const std::string limit = std::to_string(job().spec.active_deadline_seconds) + " s";
    if (const Result<void> stopped =
            stop_attempt(Outcome::kUnknown, "stopped: the job's time of " + limit + " was over");
        !stopped) {
      return stopped.error();
    }
    if (record_.status.find("Running") != nullptr) {
      record_.set("Running", false, "DeadlineExceeded", "the job's time of " + limit + " is over");
    }
    return fail("DeadlineExceeded", "the job did not end within spec.activeDeadlineSeconds, " + limit);
  }

  Result<void> fail(const std::string& reason, const std::string& message) {
    record_.status.completion_time = record_.now();
    record_.set("Failed", true, reason, message);
    record_.event(EventType::kWarning, "Failed", message);
    if (const Result<void> written = record_.write(); !written) {
      return written.error();
    }
    if (context_.observer != nullptr) {
      context_.observer->finished(job(), record_.status, false);
    }
    return {};
  }

  void remove_children(std::int64_t number) {
    if (number < 0) {
      return;
    }
    const std::string name = child_name(job().name, number);
    for (const Result<void>& removed : {children_.remove(kJobs, name), children_.remove(kServices, name),
                                        children_.remove(kConfigMaps, name + "-plan")}) {
      if (!removed) {  // they are deleted with the job at the latest
        log_warning("Failed to delete the children of an old attempt",
                    {{"job", job().namespace_name + "/" + job().name},
                     {"requestId", crds::request_id_of(record_.object())},
                     {"attempt", number},
                     {"reason", to_string(removed.error())}});
      }
    }
  }

  const crds::TrainingJob& job() const { return record_.job(); }
  crds::Attempt& attempt() { return record_.status.attempts.back(); }
  std::string child_of(const crds::Attempt& attempt) const { return child_name(job().name, attempt.number); }
  std::string key_of_child(const crds::Attempt& attempt) const {
    return job().namespace_name + "/" + child_of(attempt);
  }

  const PassContext& context_;
  const kube::CallOptions call_;
  JobRecord record_;
  ChildWriter children_;
  JobFacts facts_;
  std::optional<RequeueAfter> ended_;  // set once the pass has ended
  std::optional<Budget> budget_;       // of all that this pass decides, from its first decision on
  std::optional<AttemptPlan> plan_;    // of the attempt that this pass has begun
};

}  // namespace

Result<RequeueAfter> reconcile(const PassContext& context, const Json& object) {
  Result<crds::TrainingJob> job = crds::decode_training_job(JsonView(object));
  if (!job) {
    // The API server's schema refuses such objects; one that is older than the schema waits to be edited.
    record_event(context.events, object, EventType::kWarning, "InvalidJob",
                 "Plimsoll cannot read this job, and does nothing for it until it is edited: " +
                     to_string(job.error()));
    return RequeueAfter();
  }
  if (crds::is_managed_elsewhere(*job)) {
    return RequeueAfter();
  }
  return TrainingJobExecutor(context, object, *std::move(job)).run();
}

}  // namespace plimsoll::controllers
