#include "controllers/training_job_pass.h"

#include <algorithm>
#include <utility>

#include "base/json_edit.h"
#include "base/log.h"
#include "controllers/attempt_record.h"
#include "controllers/remediation_note.h"
#include "controllers/training_job_steps.h"
#include "estimator/provisioner/patch.h"
#include "estimator/provisioner/provisioner.h"

namespace plimsoll::controllers {

using crds::Attempt;
using crds::Outcome;
using kube::EventType;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

Error cancelled() {
  return Error(ErrorCode::kCancelled, "the operator stops");
}

// Of spec.trainers, by the schema.
constexpr std::int64_t kMaxTrainers = 65'536;
constexpr std::size_t kMaxGpuModelName = 63;

Next soonest(Next a, Next b) {
  if (!a || !b) {
    return a ? a : b;
  }
  return std::min(*a, *b);
}

std::string gpus_text(const Attempt& attempt) {
  return std::to_string(attempt.trainers) + " x " + (attempt.gpu_model.empty() ? "GPU" : attempt.gpu_model);
}

}  // namespace

Next Pass::until(const std::string& time) const {
  const std::optional<Clock::WallTime> when = parse_time(time);
  if (!when) {
    return std::nullopt;
  }
  // To the next whole second: times are written without fractions.
  const auto left = std::chrono::duration_cast<milliseconds>(*when - with_.clock->wall_now());
  return left.count() > 0 ? Next(left) : Next(milliseconds(0));
}

// Nothing: the job has none.
std::optional<Next> Pass::until_deadline() const {
  const std::optional<Clock::WallTime> began = parse_time(status_.start_time);
  if (job_.spec.active_deadline_seconds == 0 || !began) {
    return std::nullopt;
  }
  return until(format_time(*began + seconds(job_.spec.active_deadline_seconds)));
}

void Pass::set(const char* type, bool holds, const char* reason, const std::string& message) {
  status_.set({.type = type,
               .status = holds ? "True" : "False",
               .observed_generation = generation(),
               .reason = reason,
               .message = message},
              now());
}

void Pass::tell(EventType type, const char* reason, const std::string& message) {
  told_.push_back({type, reason, message});
}

Result<void> Pass::reload(const Json& object) {
  Result<crds::TrainingJob> job = crds::decode_training_job(JsonView(object));
  if (!job) {
    return job.error();
  }
  object_ = object;
  job_ = *std::move(job);
  return {};
}

Result<void> Pass::write() {
  status_.observed_generation = generation();
  if (!(status_ == written_)) {
    JsonEdit edit(object_);
    edit["status"] = crds::encode(status_);
    const Result<Json> updated = std::move(edit).take();
    Result<Json> answer =
        updated ? with_.client->update(kTrainingJobs, job_.namespace_name, *updated, "status", call_)
                : updated;
    if (!answer) {
      return answer.error().within("write the status");
    }
    object_ = *std::move(answer);
    written_ = status_;
  }
  for (const Told& told : told_) {
    if (with_.events != nullptr) {
      with_.events->record(reference_to(object_), told.type, told.reason, told.message);
    }
  }
  told_.clear();
  return {};
}

Result<Next> Pass::run() {
  if (!member(object_, {"metadata", "deletionTimestamp"}).isNull()) {
    return Next();  // what it owns goes with it
  }
  for (int i = 0; i < kMostSteps; ++i) {
    Result<Step> done = step();
    if (!done) {
      return done.error();
    }
    if (!done->again) {
      const std::optional<Next> deadline = until_deadline();
      const bool over = status_.is_true("Succeeded") || status_.is_true("Failed");
      return deadline && !over ? soonest(done->after, *deadline) : done->after;
    }
  }
  return Next(milliseconds(0));
}

Result<Step> Pass::step() {
  if (status_.is_true("Succeeded") || status_.is_true("Failed")) {
    return finished();
  }
  const std::optional<Next> deadline = until_deadline();
  const bool too_late = deadline && *deadline && **deadline <= milliseconds(0);
  if (too_late || job_.spec.suspend) {
    // What has ended by itself while nobody looked is not stopped.
    Result<Json> ended = child_that_ended();
    if (!ended) {
      return ended.error();
    }
    if (!ended->isNull()) {
      return look_at(status_.attempts.back(), *ended);
    }
    return too_late ? fail_for_deadline() : suspend();
  }
  if (status_.is_true("Suspended")) {
    set("Suspended", false, "Resumed", "the job may run");
    tell(EventType::kNormal, "Resumed", "the job may run again");
  }
  if (status_.attempts.empty()) {
    return begin(false);
  }
  Attempt& attempt = status_.attempts.back();
  return attempt.outcome == Outcome::kRunning ? watch(attempt) : follow(attempt);
}

// The Job of the attempt that runs, when it does so no more; else null.
Result<Json> Pass::child_that_ended() {
  if (status_.attempts.empty() || status_.attempts.back().outcome != Outcome::kRunning) {
    return Json();
  }
  Result<Json> child =
      with_.client->get(kJobs, job_.namespace_name, child_of(status_.attempts.back()), call_);
  if (!child && child.error().code != ErrorCode::kNotFound) {
    return child.error();
  }
  const bool ended = child && is_controlled_by(*child, uid()) && end_of(*child) != JobEnd::kNone;
  return ended ? *std::move(child) : Json();
}

Result<Step> Pass::finished() {
  if (!job_.spec.ttl_seconds_after_finished) {
    return Step();
  }
  const std::optional<Clock::WallTime> ended = parse_time(status_.completion_time);
  if (!ended) {
    return Step();
  }
  const Next left = until(format_time(*ended + seconds(*job_.spec.ttl_seconds_after_finished)));
  if (left && *left > milliseconds(0)) {
    return Step{.after = left};
  }
  kube::CallOptions this_one = call_;
  this_one.uid = uid();  // not another of its name, nor this one in a state that was not looked at
  this_one.resource_version = text_member(object_, {"metadata", "resourceVersion"});
  const Result<void> removed = with_.client->remove(kTrainingJobs, job_.namespace_name, job_.name, this_one);
  if (!removed && removed.error().code != ErrorCode::kNotFound) {
    return removed.error().within("delete the job after its time to live");
  }
  log_info("Deleted a job after its time to live", {{"namespace", job_.namespace_name}, {"name", job_.name}});
  return Step();
}

// An attempt ends with its suspension: while the job is held its spec may change, and the plan with it.
Result<Step> Pass::suspend() {
  if (!status_.attempts.empty() && status_.attempts.back().outcome == Outcome::kRunning) {
    Attempt& attempt = status_.attempts.back();
    if (const Result<void> removed = children_.remove(kJobs, child_of(attempt)); !removed) {
      return removed.error();
    }
    record_end(attempt, Outcome::kSuspended, "spec.suspend was set", now());
  }
  if (status_.find("Running") != nullptr) {
    set("Running", false, "Suspended", "spec.suspend is set");
  }
  if (!status_.is_true("Suspended")) {
    tell(EventType::kNormal, "Suspended", "spec.suspend is set");
  }
  set("Suspended", true, "Suspended", "spec.suspend is set");
  if (const Result<void> written = write(); !written) {
    return written.error();
  }
  return Step();
}

Budget& Pass::budget() {
  if (!budget_) {
    budget_.emplace(Budget::Limits{.deadline = std::chrono::steady_clock::now() + kTimeToDecide,
                                   .stop = with_.stop,
                                   .memory = with_.decision_memory});
  }
  return *budget_;
}

// A job that no webhook has seen is sized here.
Result<void> Pass::size() {
  const Json& annotations = member(object_, {"metadata", "annotations"});
  if (text_member(annotations, {crds::kProvisioningAnnotation}) == "disabled" ||
      !member(annotations, {crds::kDecisionAnnotation}).isNull()) {
    return {};
  }
  crds::TrainingJob resolved = job_;
  const Result<estimator::SharedGraph> graph = estimator::resolve_model(resolved, with_.models, &budget());
  if (!graph) {
    tell(EventType::kWarning, "EstimateFailed", "the job keeps its trainers: " + graph.error().message);
    return {};
  }
  const std::shared_ptr<const estimator::ClusterView> cluster = with_.cluster->get();
  const estimator::Provision provision =
      estimator::provision({.job = &resolved,
                            .graph = graph->get(),
                            .gpus = &cluster->gpus,
                            .profile = cluster->profile_of(job_.namespace_name, job_.spec.model.family),
                            .method = estimator::Method::kPlimsoll,
                            .budget = &budget()});
  if (with_.stop.stop_requested()) {
    return cancelled();
  }
  if (!provision.decided()) {
    tell(EventType::kWarning, provision.event_reason == "NoFittingGPU" ? "NoFittingGPU" : "EstimateFailed",
         "the job keeps its trainers: " + provision.reason);
    return {};
  }
  return patch_spec(estimator::patch_for(job_, provision));
}

// Of the spec and the annotations; only the object that this pass has seen is changed.
Result<void> Pass::patch_spec(Json patch) {
  if (patch.empty()) {
    return {};
  }
  JsonArray guarded;
  JsonObject test;
  test["op"] = "test";
  test["path"] = "/metadata/resourceVersion";
  test["value"] = text_member(object_, {"metadata", "resourceVersion"});
  guarded.append(std::move(test));
  for (Json& operation : patch) {
    guarded.append(std::move(operation));
  }
  const Result<Json> answer = with_.client->patch(kTrainingJobs, job_.namespace_name, job_.name,
                                                  kube::PatchType::kJson, guarded, {}, call_);
  return answer ? reload(*answer) : answer.error().within("change the spec");
}

// The next attempt: in the status first.
Result<Step> Pass::begin(bool expandable_segments) {
  if (const Next wait = until(status_.next_attempt_time); wait && *wait > milliseconds(0)) {
    if (const Result<void> written = write(); !written) {
      return written.error();
    }
    return Step{.after = wait};
  }
  const std::int64_t number = status_.attempts.empty() ? 0 : status_.attempts.back().number + 1;
  const Result<std::optional<Step>> wait = wait_for_earlier_pods(number);
  if (!wait) {
    return wait.error();
  }
  if (*wait) {
    return **wait;
  }
  // Before anything is expanded or computed from the spec.
  if (const std::string problems = this->problems(); !problems.empty()) {
    return refuse(problems);
  }
  if (status_.attempts.empty()) {
    if (const Result<void> sized = size(); !sized) {
      return sized.error();
    }
  }
  Attempt attempt;
  attempt.number = number;
  attempt.gpu_model = job_.spec.trainers.gpu_model;
  attempt.trainers = job_.spec.trainers.replicas;
  attempt.per_node = job_.spec.trainers.per_node;
  attempt.expandable_segments = expandable_segments;
  Result<AttemptPlan> plan = make_plan(attempt);
  if (!plan) {
    return plan.error();
  }
  plan_ = *std::move(plan);
  attempt.estimated = plan_->upper_bound;
  attempt.learned = plan_->learned;
  record_what_was_asked();

  status_.estimate = plan_->estimate;
  status_.next_attempt_time.clear();
  set("Estimated", plan_->problem.empty(), plan_->reason.c_str(),
      plan_->upper_bound ? "a trainer takes at most " + to_string(*plan_->upper_bound) : plan_->problem);
  set("Provisioned", true, "Provisioned", gpus_text(attempt));
  if (status_.find("Restarting") != nullptr) {
    set("Restarting", false, "Restarted", "attempt " + std::to_string(attempt.number) + " began");
  }
  set("Running", false, "Starting", "the attempt's pods are being made");
  if (attempt.number > 0) {
    ++status_.restarts;
  }
  tell(EventType::kNormal, "AttemptStarted",
       "attempt " + std::to_string(attempt.number) + " on " + gpus_text(attempt));
  status_.attempts.push_back(attempt);
  if (const Result<void> written = write(); !written) {
    return written.error();
  }
  if (with_.observer != nullptr) {
    with_.observer->began(job_, attempt);
  }
  remove_children(attempt.number - kKeptAttempts);
  return Step{.again = true};
}

// An attempt that nothing is made for.
Result<Step> Pass::refuse(const std::string& problems) {
  Attempt attempt;
  attempt.number = status_.attempts.empty() ? 0 : status_.attempts.back().number + 1;
  attempt.gpu_model = job_.spec.trainers.gpu_model;
  attempt.trainers = job_.spec.trainers.replicas;
  attempt.per_node = job_.spec.trainers.per_node;
  status_.attempts.push_back(attempt);
  record_end(status_.attempts.back(), Outcome::kUserError, "the job is invalid: " + problems, now());
  return ended(status_.attempts.back());
}

// The annotation came with the job, perhaps from a manifest of somebody's making: what the schema of the
// status would refuse is not taken.
void Pass::record_what_was_asked() {
  const auto annotation = [&](const char* name) {
    const Result<Json> json = parse_json(text_member(object_, {"metadata", "annotations", name}));
    return json ? *json : Json();
  };
  const Json asked = annotation(crds::kRequestedAnnotation);
  const std::optional<std::int64_t> replicas = JsonView(member(asked, {"replicas"})).integer();
  const bool sane = replicas && *replicas >= 1 && *replicas <= kMaxTrainers;
  status_.requested_trainers = sane ? replicas : status_.requested_trainers;
  if (!sane && job_.spec.trainers.asked && !status_.requested_trainers) {
    status_.requested_trainers = job_.spec.trainers.replicas;
  }
  const std::string gpu_model = text_member(asked, {"gpuModel"});
  if (!gpu_model.empty() && gpu_model.size() <= kMaxGpuModelName) {
    status_.requested_gpu_model = gpu_model;
  }
  if (status_.requested_trainers) {
    status_.gpus_saved = *status_.requested_trainers - job_.spec.trainers.replicas;
  }
}

Result<AttemptPlan> Pass::make_plan(const Attempt& attempt) {
  crds::TrainingJob resolved = job_;
  const Result<estimator::SharedGraph> graph = estimator::resolve_model(resolved, with_.models, &budget());
  const std::shared_ptr<const estimator::ClusterView> cluster = with_.cluster->get();
  AttemptPlan plan = plan_attempt(resolved, attempt, graph ? graph->get() : nullptr, *cluster, &budget());
  if (!graph) {
    plan.reason = "ModelUnknown";
    plan.problem = graph.error().message;
  }
  return with_.stop.stop_requested() ? Result<AttemptPlan>(cancelled()) : plan;
}

Result<Remediation> Pass::remediation(const Attempt& attempt) {
  if (const std::optional<Remediation> noted = noted_remediation(object_, attempt)) {
    return *noted;
  }
  crds::TrainingJob resolved = job_;
  const Result<estimator::SharedGraph> graph = estimator::resolve_model(resolved, with_.models, &budget());
  const bool will_not_change =
      !graph && (graph.error().code == ErrorCode::kNotFound || graph.error().code == ErrorCode::kInvalid ||
                 graph.error().code == ErrorCode::kTooLarge);
  if (!graph && !will_not_change) {
    return graph.error();  // the API server may answer next time
  }
  const std::shared_ptr<const estimator::ClusterView> cluster = with_.cluster->get();
  Remediation remediation =
      remediate({.job = &resolved,
                 .graph = graph ? graph->get() : nullptr,
                 .gpus = &cluster->gpus,
                 .profile = cluster->profile_of(job_.namespace_name, job_.spec.model.family),
                 .attempts = &status_.attempts,
                 .restarts_counted = status_.restarts_counted,
                 .restarts_uncounted = status_.restarts - status_.restarts_counted,
                 .budget = &budget()});
  if (with_.stop.stop_requested()) {
    return cancelled();  // it may be another one with time to decide
  }
  if (remediation.restart) {
    if (const Result<void> noted = patch_spec(with_note(object_, remediation, attempt)); !noted) {
      return noted.error();
    }
  }
  return remediation;
}

// What follows from an attempt that has ended, but not well.
Result<Step> Pass::follow(const Attempt& attempt) {
  if (attempt.outcome == Outcome::kSuspended) {
    return begin(attempt.expandable_segments);
  }
  if (const std::string problems = this->problems(); !problems.empty()) {
    return fail("InvalidJob", "the job is invalid and is not started again: " + problems);
  }
  const bool announced = status_.is_true("Restarting");
  const Result<Remediation> remediation = this->remediation(attempt);
  if (!remediation) {
    return remediation.error();
  }
  if (!remediation->restart) {
    return fail(remediation->reason, remediation->message);
  }
  if (!announced) {
    const std::optional<Clock::WallTime> ended = parse_time(attempt.completion_time);
    const Clock::WallTime from = ended ? *ended : with_.clock->wall_now();
    if (remediation->delay.count() > 0) {
      status_.next_attempt_time = format_time(from + remediation->delay);
    }
    if (remediation->counts) {
      ++status_.restarts_counted;
    }
    set("Restarting", true, remediation->reason.c_str(), remediation->message);
    tell(EventType::kNormal, "Restarting", remediation->message);
    if (job_.spec.trainers.replicas != attempt.trainers ||
        job_.spec.trainers.gpu_model != attempt.gpu_model) {
      tell(EventType::kNormal, "Resized", remediation->message);
    }
    if (const Result<void> written = write(); !written) {
      return written.error();
    }
  }
  return begin(remediation->expandable_segments);
}

Result<Step> Pass::fail(const std::string& reason, const std::string& message) {
  status_.completion_time = now();
  set("Failed", true, reason.c_str(), message);
  tell(EventType::kWarning, "Failed", message);
  if (const Result<void> written = write(); !written) {
    return written.error();
  }
  if (with_.observer != nullptr) {
    with_.observer->finished(job_, false);
  }
  return Step{.again = true};
}

Result<Step> Pass::fail_for_deadline() {
  const std::string limit = std::to_string(job_.spec.active_deadline_seconds) + " s";
  if (!status_.attempts.empty() && status_.attempts.back().outcome == Outcome::kRunning) {
    Attempt& attempt = status_.attempts.back();
    if (const Result<void> removed = children_.remove(kJobs, child_of(attempt)); !removed) {
      return removed.error();
    }
    record_end(attempt, Outcome::kUnknown, "stopped: the job's time of " + limit + " was over", now());
  }
  if (status_.find("Running") != nullptr) {
    set("Running", false, "DeadlineExceeded", "the job's time of " + limit + " is over");
  }
  return fail("DeadlineExceeded", "the job did not end within spec.activeDeadlineSeconds, " + limit);
}

void Pass::remove_children(std::int64_t number) {
  if (number < 0) {
    return;
  }
  const std::string name = child_name(job_.name, number);
  for (const Result<void>& removed : {children_.remove(kJobs, name), children_.remove(kServices, name),
                                      children_.remove(kConfigMaps, name + "-plan")}) {
    if (!removed) {  // they go with the job at the latest
      log_warning("Failed to delete the children of an old attempt",
                  {{"job", job_.namespace_name + "/" + job_.name},
                   {"attempt", std::to_string(number)},
                   {"reason", to_string(removed.error())}});
    }
  }
}

kube::ObjectReference reference_to(const JsonView& job) {
  return {.api_version = crds::kApiVersion,
          .kind = "TrainingJob",
          .namespace_name = text_member(job, {"metadata", "namespace"}),
          .name = text_member(job, {"metadata", "name"}),
          .uid = text_member(job, {"metadata", "uid"})};
}

Result<Next> look_after(const Surroundings& surroundings, const Json& object) {
  Result<crds::TrainingJob> job = crds::decode_training_job(JsonView(object));
  if (!job) {
    // The API server's schema refuses such objects; one that is older than the schema waits to be edited.
    log_warning("Failed to read a job", {{"job", kube::key_of(object)}, {"problem", to_string(job.error())}});
    if (surroundings.events != nullptr) {
      surroundings.events->record(
          reference_to(object), EventType::kWarning, "InvalidJob",
          "Plimsoll cannot read this job, and does nothing for it until it is edited: " +
              to_string(job.error()));
    }
    return Next();
  }
  if (crds::is_managed_elsewhere(*job)) {
    return Next();
  }
  return Pass(surroundings, object, *std::move(job)).run();
}

}  // namespace plimsoll::controllers
