#include "controllers/training_job_pass.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/json_edit.h"
#include "base/log.h"
#include "controllers/attempt_plan.h"
#include "controllers/attempt_record.h"
#include "controllers/child_writer.h"
#include "controllers/job_children.h"
#include "controllers/remediation.h"
#include "controllers/remediation_note.h"
#include "estimator/provisioner.h"

namespace plimsoll::controllers {
namespace {

using crds::Attempt;
using crds::Outcome;
using kube::EventType;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kFieldManager = "plimsoll.dev/trainingjob";
// Of an estimate or a decision; the admission has less, and a controller is in no hurry.
constexpr seconds kTimeToDecide{30};
// A pass does what follows from what it has just done, so long as it comes to an end.
constexpr int kMostSteps = 8;
// Children of the last attempts stay, for their logs.
constexpr std::int64_t kKeptAttempts = 3;
constexpr seconds kLookAgain{30};  // at what nothing will tell of: a name that is taken, a quota

// What one step gives: whether there is more to do at once, else when to look again.
struct Step {
  bool again = false;
  Next after = std::nullopt;
};

Next soonest(Next a, Next b) {
  if (!a || !b) {
    return a ? a : b;
  }
  return std::min(*a, *b);
}

std::string gpus_text(const Attempt& attempt) {
  return std::to_string(attempt.trainers) + " x " + (attempt.gpu_model.empty() ? "GPU" : attempt.gpu_model);
}

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
  Result<Step> watch(Attempt& attempt);
  Result<AttemptChildren> children_of(const Attempt& attempt);
  Result<Step> make_children_of(Attempt& attempt);
  Result<Step> look_at(Attempt& attempt, const Json& child);
  Result<void> restore_what_pods_need(const Attempt& attempt);
  Result<Step> started(Attempt& attempt, const Json& child);
  Result<Step> ended(Attempt& attempt);
  Result<Step> follow(const Attempt& attempt);
  Result<Step> fail(const std::string& reason, const std::string& message);
  Result<Step> fail_for_deadline();
  Result<Step> refuse(const std::string& problems);
  // What is wrong with the job, which no webhook may have seen; empty for a valid one.
  std::string problems() const { return crds::to_string(crds::validate(job_)); }

  Result<void> size();
  Result<Remediation> remediation(const Attempt& attempt);
  Result<void> patch_spec(Json patch);
  AttemptPlan make_plan(const Attempt& attempt);
  void record_what_was_asked();
  Result<std::vector<Json>> all_pods(const Attempt& attempt, const Json& child);
  Result<void> is_current();
  void remove_children(std::int64_t number);
  Result<void> write();
  Result<void> reload(const Json& object);

  void set(const char* type, bool holds, const char* reason, const std::string& message);
  void tell(EventType type, const char* reason, const std::string& message);
  std::string now() const { return format_time(with_.clock->wall_now()); }
  std::string child_of(const Attempt& attempt) const { return child_name(job_.name, attempt.number); }
  std::string key_of_child(const Attempt& attempt) const {
    return job_.namespace_name + "/" + child_of(attempt);
  }
  std::int64_t generation() const {
    return JsonView(member(object_, {"metadata", "generation"})).integer().value_or(0);
  }
  std::string uid() const { return text_member(object_, {"metadata", "uid"}); }
  Next until(const std::string& time) const;
  std::optional<Next> until_deadline() const;
  static std::chrono::steady_clock::time_point time_to_decide() {
    return std::chrono::steady_clock::now() + kTimeToDecide;
  }

  const Surroundings& with_;
  Json object_;  // as the API server has it; the writes of this pass included
  crds::TrainingJob job_;
  crds::JobStatus status_;
  crds::JobStatus written_;
  kube::CallOptions call_;
  ChildWriter children_;
  std::optional<AttemptPlan> plan_;  // of the attempt that this pass has begun
  struct Told {
    EventType type;
    std::string reason;
    std::string message;
  };
  std::vector<Told> told_;  // once the status is written
};

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
      with_.events->record({.api_version = crds::kApiVersion,
                            .kind = "TrainingJob",
                            .namespace_name = job_.namespace_name,
                            .name = job_.name,
                            .uid = uid()},
                           told.type, told.reason, told.message);
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
  this_one.uid = uid();  // not another of its name
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

// A job that no webhook has seen is sized here.
Result<void> Pass::size() {
  const Json& annotations = member(object_, {"metadata", "annotations"});
  if (text_member(annotations, {crds::kProvisioningAnnotation}) == "disabled" ||
      !member(annotations, {crds::kDecisionAnnotation}).isNull()) {
    return {};
  }
  crds::TrainingJob resolved = job_;
  const Result<estimator::SharedGraph> graph =
      estimator::resolve_model(resolved, with_.models, time_to_decide());
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
                            .deadline = time_to_decide()});
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
  attempt.number = status_.attempts.empty() ? 0 : status_.attempts.back().number + 1;
  attempt.gpu_model = job_.spec.trainers.gpu_model;
  attempt.trainers = job_.spec.trainers.replicas;
  attempt.per_node = job_.spec.trainers.per_node;
  attempt.expandable_segments = expandable_segments;
  plan_ = make_plan(attempt);
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

void Pass::record_what_was_asked() {
  const auto annotation = [&](const char* name) {
    const Result<Json> json = parse_json(text_member(object_, {"metadata", "annotations", name}));
    return json ? *json : Json();
  };
  const Json asked = annotation(crds::kRequestedAnnotation);
  const std::optional<std::int64_t> replicas = JsonView(member(asked, {"replicas"})).integer();
  status_.requested_trainers = replicas ? replicas : status_.requested_trainers;
  if (asked.isNull() && job_.spec.trainers.asked && !status_.requested_trainers) {
    status_.requested_trainers = job_.spec.trainers.replicas;
  }
  status_.requested_gpu_model = text_member(asked, {"gpuModel"}, status_.requested_gpu_model);
  if (status_.requested_trainers) {
    status_.gpus_saved = *status_.requested_trainers - job_.spec.trainers.replicas;
  }
}

AttemptPlan Pass::make_plan(const Attempt& attempt) {
  crds::TrainingJob resolved = job_;
  const Result<estimator::SharedGraph> graph =
      estimator::resolve_model(resolved, with_.models, time_to_decide());
  const std::shared_ptr<const estimator::ClusterView> cluster = with_.cluster->get();
  AttemptPlan plan =
      plan_attempt(resolved, attempt, graph ? graph->get() : nullptr, *cluster, time_to_decide());
  if (!graph) {
    plan.reason = "ModelUnknown";
    plan.problem = graph.error().message;
  }
  return plan;
}

Result<Step> Pass::watch(Attempt& attempt) {
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
    plan_ = make_plan(attempt);
  }
  Result<AttemptChildren> children = make_children(job_, attempt, plan_->text);
  if (!children && children.error().code ==
                       ErrorCode::kTooLarge) {  // the plan is too large; the trainers can still be run
    tell(EventType::kWarning, "PlanTooLarge", children.error().message);
    children = make_children(job_, attempt, "{}");
  }
  return children;
}

Result<Step> Pass::make_children_of(Attempt& attempt) {
  if (const Result<void> current = is_current(); !current) {
    return current.error();
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
    record_end(attempt, Outcome::kInfrastructureFailure, error.message, now());
    return ended(attempt);
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
        return restored.error();
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
    return made.error().within("make again what was deleted");
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
Result<Step> Pass::ended(Attempt& attempt) {
  set("Running", false, name_of(attempt.outcome), attempt.message);
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
         out_of_memory                            ? "OOMDetected"
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

Result<Remediation> Pass::remediation(const Attempt& attempt) {
  if (const std::optional<Remediation> noted = noted_remediation(object_, attempt.number)) {
    return *noted;
  }
  crds::TrainingJob resolved = job_;
  const Result<estimator::SharedGraph> graph =
      estimator::resolve_model(resolved, with_.models, time_to_decide());
  if (!graph && graph.error().code != ErrorCode::kNotFound && graph.error().code != ErrorCode::kInvalid) {
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
                 .deadline = time_to_decide()});
  if (remediation.restart) {
    if (const Result<void> noted = patch_spec(with_note(object_, remediation, attempt.number)); !noted) {
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
    set("Running", false, "DeadlineExceeded", attempt.message);
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
      log_warning("Could not clear an old attempt away",
                  {{"job", job_.namespace_name + "/" + job_.name}, {"reason", to_string(removed.error())}});
    }
  }
}

}  // namespace

Result<Next> look_after(const Surroundings& surroundings, const Json& object) {
  Result<crds::TrainingJob> job = crds::decode_training_job(JsonView(object));
  if (!job) {
    // The API server's schema refuses such objects; one that is older than the schema waits to be edited.
    log_warning("Left a job alone that cannot be read",
                {{"job", kube::key_of(object)}, {"problem", job.error().message}});
    return Next();
  }
  if (crds::is_managed_elsewhere(*job)) {
    return Next();
  }
  return Pass(surroundings, object, *std::move(job)).run();
}

}  // namespace plimsoll::controllers
