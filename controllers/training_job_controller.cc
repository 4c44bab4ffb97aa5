#include "controllers/training_job_controller.h"

#include <prometheus/counter.h>

#include <algorithm>
#include <utility>

#include "base/catch_all.h"
#include "base/log.h"
#include "controllers/gpu_hours.h"
#include "controllers/job_children.h"
#include "controllers/job_events.h"
#include "crds/request_id.h"
#include "metrics/families.h"

namespace plimsoll::controllers {
namespace {

constexpr const char* kByJob = "job";  // pods by the key of their Job
constexpr std::chrono::milliseconds kClusterPoll{100};

// The key of the object's controller, which is in the same namespace; empty without one.
std::string key_of_controller(const JsonView& object, const char* kind) {
  for (const JsonView owner : member(object, {"metadata", "ownerReferences"}).elements()) {
    if (member(owner, {"controller"}).boolean() == true && text_member(owner, {"kind"}) == kind) {
      return text_member(object, {"metadata", "namespace"}) + "/" + text_member(owner, {"name"});
    }
  }
  return {};
}

JsonSelection slim_child() {
  return JsonSelection()
      .only({}, {"metadata", "spec", "status"})
      .only({"metadata"}, {"name", "namespace", "uid", "resourceVersion", "labels", "ownerReferences",
                           "creationTimestamp", "deletionTimestamp"})
      .only({"spec"}, {"parallelism", "suspend"})
      .only({"status"}, {"active", "ready", "terminating", "succeeded", "failed", "conditions"});
}

JsonSelection slim_trainer_pod() {
  return JsonSelection()
      .only({}, {"metadata", "status"})
      .only({"metadata"},
            {"name", "namespace", "uid", "resourceVersion", "ownerReferences", "deletionTimestamp"})
      .only({"status"},
            {"phase", "reason", "message", "conditions", "containerStatuses", "initContainerStatuses"});
}

JsonSelection slim_training_job() {
  return JsonSelection()
      .without({"metadata"}, {"managedFields"})
      .without({"metadata", "annotations"}, {"kubectl.kubernetes.io/last-applied-configuration"});
}

// Whether the pod's end shows why an attempt failed; that of a pod that was deleted while healthy does not.
bool explains_a_failure(const JsonView& pod) {
  for (const JsonView condition : member(pod, {"status", "conditions"}).elements()) {
    const std::string type = text_member(condition, {"type"});
    if ((type == "DisruptionTarget" || type == "TerminationTarget") &&
        text_member(condition, {"status"}) == "True") {
      return true;
    }
  }
  if (text_member(pod, {"status", "phase"}) == "Failed") {
    return true;
  }
  for (const JsonView status : member(pod, {"status", "containerStatuses"}).elements()) {
    if (member(status, {"state", "terminated", "exitCode"}).integer().value_or(0) != 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

struct TrainingJobController::Metrics final : public JobObserver {
  explicit Metrics(prometheus::Registry& registry)
      : queue(registry, "trainingjob"),
        training_jobs(registry, "trainingjobs"),
        children(registry, "jobs"),
        pods(registry, "trainer-pods"),
        reconciles(metrics::counters(registry, "controller_runtime_reconcile_total")),
        panics(metrics::reconcile_panics(registry, "trainingjob")),
        created(metrics::counters(registry, "plimsoll_jobs_created_total")),
        succeeded(metrics::counters(registry, "plimsoll_jobs_succeeded_total")),
        failed(metrics::counters(registry, "plimsoll_jobs_failed_total")),
        restarted(metrics::counters(registry, "plimsoll_jobs_restarted_total")),
        attempts(metrics::counters(registry, "plimsoll_job_attempts_total")),
        gpu_hours(metrics::counters(registry, "plimsoll_job_gpu_hours_total")),
        gpu_hours_saved(metrics::counters(registry, "plimsoll_job_gpu_hours_saved_total")) {}

  void began(const crds::TrainingJob& job, const crds::Attempt& attempt) override {
    (attempt.number == 0 ? created : restarted).Add({{"namespace", job.namespace_name}}).Increment();
  }
  void ended(const crds::TrainingJob& job, const crds::Attempt& attempt) override {
    attempts.Add({{"namespace", job.namespace_name}, {"outcome", name_of(attempt.outcome)}}).Increment();
  }
  void finished(const crds::TrainingJob& job, const crds::JobStatus& status, bool well) override {
    (well ? succeeded : failed).Add({{"namespace", job.namespace_name}}).Increment();
    const auto add = [&](prometheus::Family<prometheus::Counter>& hours, const std::string& text) {
      hours.Add({{"namespace", job.namespace_name}}).Increment(std::max(0.0, gpu_hours_in(text).value_or(0)));
    };
    add(gpu_hours, status.gpu_hours);
    add(gpu_hours_saved, status.gpu_hours_saved);
  }
  void reconciled(const char* result) {
    reconciles.Add({{"controller", "trainingjob"}, {"result", result}}).Increment();
  }

  metrics::QueueMetrics queue;
  metrics::ReflectorMetrics training_jobs;
  metrics::ReflectorMetrics children;
  metrics::ReflectorMetrics pods;
  prometheus::Family<prometheus::Counter>& reconciles;
  prometheus::Counter& panics;
  prometheus::Family<prometheus::Counter>& created;
  prometheus::Family<prometheus::Counter>& succeeded;
  prometheus::Family<prometheus::Counter>& failed;
  prometheus::Family<prometheus::Counter>& restarted;
  prometheus::Family<prometheus::Counter>& attempts;
  prometheus::Family<prometheus::Counter>& gpu_hours;
  prometheus::Family<prometheus::Counter>& gpu_hours_saved;
};

TrainingJobController::TrainingJobController(kube::Client& client, const estimator::ClusterViewStore& cluster,
                                             estimator::ModelSource* models, kube::EventRecorder* events,
                                             Options options)
    : client_(client),
      options_(std::move(options)),
      metrics_(options_.registry == nullptr ? nullptr : std::make_unique<Metrics>(*options_.registry)),
      queue_({.retries = {},
              .workers = options_.workers,
              .clock = options_.clock,
              .observer = metrics_ == nullptr ? nullptr : &metrics_->queue}),
      jobs_(client,
            {.resource = kTrainingJobs,
             .keep = slim_training_job(),
             .on_change = [this](const kube::Reflector::Change& change) { queue_.add(change.key); },
             .observer = metrics_ == nullptr ? nullptr : &metrics_->training_jobs},
            options_.namespaces),
      children_(client,
                {.resource = kJobs,
                 .label_selector = kJobNameLabel,
                 .keep = slim_child(),
                 .on_change = [this](const kube::Reflector::Change& change) { child_changed(change); },
                 .observer = metrics_ == nullptr ? nullptr : &metrics_->children},
                options_.namespaces),
      pods_(client,
            {.resource = kPods,
             .label_selector = kJobNameLabel,
             .keep = slim_trainer_pod(),
             .indexers = {{kByJob,
                           [](const JsonView& pod) {
                             return std::vector<std::string>{key_of_controller(pod, "Job")};
                           }}},
             .on_change = [this](const kube::Reflector::Change& change) { pod_changed(change); },
             .observer = metrics_ == nullptr ? nullptr : &metrics_->pods},
            options_.namespaces) {
  context_.client = &client_;
  context_.cluster = &cluster;
  context_.models = models;
  context_.events = events;
  context_.observer = metrics_.get();
  context_.clock = options_.clock;
  context_.find_job = [this](const std::string& key) { return children_.find(key); };
  context_.find_pods = [this](const std::string& key) { return kube::trees_of(pods_.by_index(kByJob, key)); };
  context_.departed_pods = [this](const std::string& key) { return departed_.of(key); };
  if (metrics_) {
    metrics_->queue.watch(&queue_);
  }
}

TrainingJobController::~TrainingJobController() {
  stop();
  if (metrics_) {
    metrics_->queue.watch(nullptr);
  }
}

void TrainingJobController::child_changed(const kube::Reflector::Change& change) {
  if (const std::string key = key_of_controller(*change.object, "TrainingJob"); !key.empty()) {
    queue_.add(key);
  }
  if (change.kind == kube::Reflector::Change::Kind::kRemoved) {
    departed_.forget(change.key);
  }
}

void TrainingJobController::pod_changed(const kube::Reflector::Change& change) {
  if (change.kind == kube::Reflector::Change::Kind::kRemoved && explains_a_failure(*change.object)) {
    departed_.remember(key_of_controller(*change.object, "Job"), change.object);
  }
  const kube::SharedObject child = children_.find(key_of_controller(*change.object, "Job"));
  if (child != nullptr) {  // else the change of the Job itself will follow
    if (const std::string key = key_of_controller(*child, "TrainingJob"); !key.empty()) {
      queue_.add(key);
    }
  }
}

void TrainingJobController::start() {
  jobs_.start();
  children_.start();
  pods_.start();
  for (int i = 0; i < options_.workers; ++i) {
    workers_.emplace_back([this](const std::stop_token& stop) { run(stop); });
  }
}

void TrainingJobController::stop() {
  queue_.shut_down();
  for (std::jthread& worker : workers_) {
    worker.request_stop();
  }
  workers_.clear();
  jobs_.stop();
  children_.stop();
  pods_.stop();
}

bool TrainingJobController::ready() const {
  return jobs_.has_synced() && children_.has_synced() && pods_.has_synced();
}

void TrainingJobController::refresh_metrics() {
  if (metrics_) {
    metrics_->queue.refresh();
  }
}

void TrainingJobController::run(const std::stop_token& stop) {
  if (!jobs_.wait_for_sync(stop) || !children_.wait_for_sync(stop) || !pods_.wait_for_sync(stop)) {
    return;
  }
  while (const std::optional<std::string> key = queue_.get(stop)) {
    handle(*key, stop);
    queue_.done(*key);
  }
}

// An exception of a pass affects this job alone: it gets an event, and is retried with back-off.
Result<RequeueAfter> TrainingJobController::reconcile(const kube::SharedObject& object,
                                                      const std::stop_token& stop) {
  Result<RequeueAfter> next = RequeueAfter();
  const std::optional<std::string> thrown = catch_all([&] {
    PassContext context = context_;
    context.stop = stop;
    context.decision_memory = options_.decision_memory;
    context.patterns = options_.patterns;
    context.policy = options_.policy;
    next = options_.reconcile(context, object.tree());
  });
  if (!thrown) {
    return next;
  }
  if (metrics_) {
    metrics_->panics.Increment();
  }
  record_event(context_.events, *object, kube::EventType::kWarning, "ReconcileFailed",
               "Plimsoll failed to reconcile this job and will try again: " + *thrown);
  return Error(ErrorCode::kInternal, *thrown);
}

void TrainingJobController::handle(const std::string& key, const std::stop_token& stop) {
  const kube::SharedObject object = jobs_.find(key);
  const bool excluded = options_.excluded_namespaces.contains(key.substr(0, key.find('/')));
  if (object == nullptr || excluded || (options_.leads && !options_.leads())) {
    queue_.forget(key);
    return;
  }
  if (options_.cluster_is_known && !options_.cluster_is_known()) {
    queue_.add_after(key, kClusterPoll);
    return;
  }
  const Result<RequeueAfter> next = reconcile(object, stop);
  if (metrics_) {
    metrics_->reconciled(!next ? "error" : *next ? "requeue_after" : "success");
  }
  if (next) {
    queue_.forget(key);
    if (*next) {
      queue_.add_after(key, **next);
    }
    return;
  }
  const Error& error = next.error();
  if (error.code == ErrorCode::kCancelled) {
    return;
  }
  // A conflict is routine: the watch brings the newer object within moments.
  log(error.code == ErrorCode::kConflict ? LogLevel::kDebug : LogLevel::kWarning, "Failed to reconcile a job",
      {{"job", key}, {"requestId", crds::request_id_of(*object)}, {"reason", to_string(error)}});
  if (error.retry_after.count() > 0) {
    queue_.add_after(key, error.retry_after);
  } else {
    queue_.add_rate_limited(key);
  }
}

}  // namespace plimsoll::controllers
