#include "controllers/calibration.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>

#include <algorithm>

#include "base/catch_all.h"
#include "base/json/edit.h"
#include "base/log.h"
#include "controllers/dcgm.h"
#include "controllers/job_children.h"
#include "controllers/job_events.h"
#include "crds/gpu_model.h"
#include "crds/request_id.h"
#include "estimator/provisioner/cluster_view.h"
#include "metrics/families.h"

namespace plimsoll::controllers {
namespace {

const kube::Resource kProfiles{crds::kGroup, crds::kVersion, "memoryprofiles", true};
const kube::Resource kGpuModels{crds::kGroup, crds::kVersion, "gpumodels", false};

// Jobs whose attempts are in the metrics. When there are more, all are forgotten; attempts before the start
// of the process are never counted.
constexpr std::size_t kMaxCounted = 100'000;

// The fields that are read.
JsonSelection slim_job() {
  return JsonSelection()
      .only({}, {"metadata", "spec", "status"})
      .only({"metadata"}, {"name", "namespace", "uid", "resourceVersion"})
      .only({"spec"}, {"model", "failurePolicy"})
      .only({"spec", "model"}, {"family"})
      .only({"status"}, {"attempts", "estimate"});
}

bool has_ended(const crds::Attempt& attempt) {
  return attempt.outcome != crds::Outcome::kRunning;
}

const crds::ProfileSample* find_sample(const std::vector<crds::ProfileSample>& samples,
                                       const LearnedJob& job) {
  const auto found = std::find_if(samples.begin(), samples.end(),
                                  [&](const auto& sample) { return sample.job_uid == job.uid; });
  return found == samples.end() ? nullptr : &*found;
}

}  // namespace

struct CalibrationController::Metrics {
  explicit Metrics(prometheus::Registry& registry)
      : queue(registry, "calibration"),
        errors(metrics::histograms(registry, "plimsoll_estimate_relative_error")),
        out_of_memory(metrics::counters(registry, "plimsoll_oom_detected_total")),
        panics(metrics::reconcile_panics(registry, "calibration")) {}

  metrics::QueueMetrics queue;
  prometheus::Family<prometheus::Histogram>& errors;
  prometheus::Family<prometheus::Counter>& out_of_memory;
  prometheus::Counter& panics;
};

CalibrationController::CalibrationController(kube::Client& client, estimator::GpuCatalog catalog,
                                             Options options)
    : client_(client),
      catalog_(std::move(catalog)),
      options_(std::move(options)),
      metrics_(options_.registry == nullptr ? nullptr : std::make_unique<Metrics>(*options_.registry)),
      queue_({.retries = options_.retries,
              .clock = options_.clock,
              .observer = metrics_ == nullptr ? nullptr : &metrics_->queue}),
      jobs_(client,
            {.resource = kTrainingJobs,
             .keep = slim_job(),
             .on_change = [this](const kube::Reflector::Change& change) { queue_.add(change.key); }},
            options_.namespaces),
      profiles_(client,
                {.resource = kProfiles,
                 .on_change =
                     [this](const kube::Reflector::Change& change) {
                       if (change.kind == kube::Reflector::Change::Kind::kRemoved) {
                         learn_again(*change.object);
                       }
                     }},
                options_.namespaces),
      gpu_models_(client, {.resource = kGpuModels}) {}

CalibrationController::~CalibrationController() {
  stop();
}

void CalibrationController::start() {
  started_ = format_time(options_.clock->wall_now());
  gpu_models_.start();
  profiles_.start();
  jobs_.start();
  worker_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void CalibrationController::stop() {
  queue_.shut_down();
  if (worker_.joinable()) {
    worker_.request_stop();
    worker_.join();
  }
  jobs_.stop();
  profiles_.stop();
  gpu_models_.stop();
}

// When a profile is deleted, its jobs are added to the next one.
void CalibrationController::learn_again(const JsonView& profile) {
  for (const kube::SharedObject& job : jobs_.snapshot()) {
    if (text_member(*job, {"metadata", "namespace"}) == text_member(profile, {"metadata", "namespace"}) &&
        text_member(*job, {"spec", "model", "family"}) == text_member(profile, {"spec", "family"})) {
      queue_.add(kube::key_of(*job));
    }
  }
}

void CalibrationController::run(const std::stop_token& stop) {
  if (!gpu_models_.wait_for_sync(stop) || !profiles_.wait_for_sync(stop) || !jobs_.wait_for_sync(stop)) {
    return;
  }
  while (true) {
    ready_ = ready_ || queue_.size() == 0;
    const std::optional<std::string> key = queue_.get(stop);
    if (!key) {
      return;
    }
    Result<void> done;
    if (const std::optional<std::string> thrown = catch_all([&] { done = reconcile(*key, stop); })) {
      done = Error(ErrorCode::kInternal, *thrown);
      report_exception(*key, *thrown);
    }
    if (done) {
      queue_.forget(*key);
    } else {
      // Conflicts are routine: the watch brings the newer profile within moments.
      const bool routine = done.error().code == ErrorCode::kConflict;
      log(routine ? LogLevel::kDebug : LogLevel::kWarning, "Failed to learn from a job",
          {{"job", *key}, {"requestId", request_id_of(*key)}, {"reason", to_string(done.error())}});
      queue_.add_rate_limited(*key);
    }
    queue_.done(*key);
  }
}

std::string CalibrationController::request_id_of(const std::string& key) const {
  const kube::SharedObject object = jobs_.find(key);
  return object != nullptr ? crds::request_id_of(*object) : std::string();
}

void CalibrationController::report_exception(const std::string& key, const std::string& thrown) {
  if (metrics_) {
    metrics_->panics.Increment();
  }
  const kube::SharedObject object = jobs_.find(key);
  if (object != nullptr) {
    record_event(options_.events, *object, kube::EventType::kWarning, "CalibrationFailed",
                 "Plimsoll failed to learn from this job and will try again: " + thrown);
  }
}

Result<void> CalibrationController::reconcile(const std::string& key, const std::stop_token& stop) {
  const kube::SharedObject object = jobs_.find(key);
  if (object == nullptr) {
    return {};
  }
  LearnedJob job{.uid = text_member(*object, {"metadata", "uid"}),
                 .namespace_name = text_member(*object, {"metadata", "namespace"}),
                 .name = text_member(*object, {"metadata", "name"}),
                 .family = text_member(*object, {"spec", "model", "family"}),
                 .request_id = crds::request_id_of(*object),
                 .failure_policy = crds::decode_failure_policy(*object),
                 .status = crds::decode_status(object.tree())};
  if (job.uid.empty() || std::none_of(job.status.attempts.begin(), job.status.attempts.end(), has_ended)) {
    return {};
  }
  count(job);
  return job.family.empty() ? Result<void>() : learn_from(std::move(job), stop);
}

Result<void> CalibrationController::learn_from(LearnedJob job, const std::stop_token& stop) {
  const kube::CallOptions call{.field_manager = "plimsoll-calibration", .stop = stop};
  const std::string key = job.namespace_name + "/" + job.name;
  Json profile;
  std::size_t profiles = 0;  // of the namespace
  for (const kube::SharedObject& one : profiles_.snapshot()) {
    if (text_member(*one, {"metadata", "namespace"}) != job.namespace_name) {
      continue;
    }
    ++profiles;
    // By name, so that the webhook and the operator use the same one of several.
    if (text_member(*one, {"spec", "family"}) == job.family) {
      profile = one.tree();
      break;
    }
  }
  if (profile.isNull() && profiles >= estimator::kProfilesOfNamespace) {
    // A limit on made-up families, for the API server and for those that watch it.
    log_warning(
        "Learned nothing from a job: its namespace has too many MemoryProfiles",
        {{"job", key}, {"requestId", job.request_id}, {"family", job.family}, {"profiles", profiles}});
    return {};
  }
  std::vector<crds::ProfileSample> samples = crds::decode_samples(profile);
  const crds::ProfileSample* known = find_sample(samples, job);
  const std::vector<estimator::AvailableGpu> present = gpus();
  if (!sample_of(job, known, present)) {
    return {};
  }
  if (options_.prometheus != nullptr) {
    read_dcgm_peaks(job, known == nullptr ? -1 : known->last_attempt, stop);
  }
  if (profile.isNull()) {
    Result<Json> made = make_profile(job, call);
    if (!made) {
      return made.error();
    }
    profile = *std::move(made);
    samples = crds::decode_samples(profile);
    known = find_sample(samples, job);
  }
  std::optional<crds::ProfileSample> sample = sample_of(job, known, present);
  if (!sample) {
    return {};
  }
  const std::vector<crds::ProfileSample> before = samples;
  samples = with_sample(std::move(samples), *std::move(sample));
  if (samples == before) {
    return {};  // older than all that is remembered
  }
  JsonEdit edit(std::move(profile));
  const JsonPlace status = edit["status"];
  status["bounds"] = encode(bounds_of(samples));
  status["statistics"] = statistics_of(samples);
  status["samples"] = crds::encode(samples);
  if (!samples.front().time.empty()) {
    status["updateTime"] = samples.front().time;
  }
  const Result<Json> changed = std::move(edit).take();
  const Result<Json> written =
      changed ? client_.update(kProfiles, job.namespace_name, *changed, "status", call) : changed;
  if (!written) {
    return written.error().within("write the MemoryProfile of " + job.family);
  }
  log_info("Learned from a job", {{"job", key}, {"requestId", job.request_id}, {"family", job.family}});
  return {};
}

// The family's profile, which is not in the cache: created, or read from the API server.
Result<Json> CalibrationController::make_profile(const LearnedJob& job, const kube::CallOptions& call) {
  Result<Json> made = Error(ErrorCode::kAlreadyExists, "");
  for (const std::string& name : {profile_name(job.family), profile_name(job.family, true)}) {
    const Json profile =
        json_object({{"apiVersion", crds::kApiVersion},
                     {"kind", "MemoryProfile"},
                     {"metadata", json_object({{"name", name}, {"namespace", job.namespace_name}})},
                     {"spec", json_object({{"family", job.family}})}});
    made = client_.create(kProfiles, job.namespace_name, profile, call);
    if (made || made.error().code != ErrorCode::kAlreadyExists) {
      break;
    }
    Result<Json> existing = client_.get(kProfiles, job.namespace_name, name, call);
    if (!existing || text_member(*existing, {"spec", "family"}) == job.family) {
      return existing;
    }
  }
  return made ? std::move(made) : made.error().within("create the MemoryProfile of " + job.family);
}

// Where Prometheus does not answer, there are no DCGM figures.
void CalibrationController::read_dcgm_peaks(LearnedJob& job, std::int64_t after,
                                            const std::stop_token& stop) const {
  const kube::CallOptions call{.timeout = options_.prometheus_timeout, .stop = stop};
  for (crds::Attempt& attempt : job.status.attempts) {
    if (attempt.number <= after || !has_ended(attempt)) {
      continue;
    }
    const Result<std::optional<Bytes>> peak =
        dcgm_peak(*options_.prometheus, job.namespace_name, job.name, attempt, call);
    if (!peak) {
      log_warning("Learned without DCGM's figures", {{"job", job.namespace_name + "/" + job.name},
                                                     {"requestId", job.request_id},
                                                     {"reason", to_string(peak.error())}});
      return;
    }
    if (*peak) {
      attempt.observed_peak = std::max(attempt.observed_peak.value_or(Bytes{}), **peak);
    }
  }
}

std::vector<estimator::AvailableGpu> CalibrationController::gpus() const {
  std::vector<crds::GpuModel> models;
  for (const kube::SharedObject& object : gpu_models_.snapshot()) {
    if (Result<crds::GpuModel> model = crds::decode_gpu_model(object.tree())) {
      models.push_back(*std::move(model));
    }
  }
  return estimator::inventory_of(models, catalog_);
}

// The name of the job's profile. Empty for further families than a namespace may have profiles: users make them up.
std::string CalibrationController::profile_label(const LearnedJob& job) {
  if (job.family.empty()) {
    return {};
  }
  std::set<std::string>& names = counted_profiles_[job.namespace_name];
  std::string name = profile_name(job.family);
  if (names.size() >= estimator::kProfilesOfNamespace && !names.contains(name)) {
    return {};
  }
  names.insert(name);
  return name;
}

// Adds each attempt that has ended since the start to the metrics, once.
void CalibrationController::count(const LearnedJob& job) {
  if (!metrics_) {
    return;
  }
  if (counted_.size() >= kMaxCounted) {
    counted_.clear();
  }
  std::int64_t& last = counted_.try_emplace(job.uid, -1).first->second;
  for (const crds::Attempt& attempt : job.status.attempts) {
    if (!has_ended(attempt) || attempt.number <= last) {
      continue;
    }
    last = attempt.number;
    if (attempt.completion_time < started_) {
      continue;
    }
    const bool cuda = attempt.outcome == crds::Outcome::kCudaOutOfMemory;
    if (cuda || attempt.outcome == crds::Outcome::kHostOutOfMemory) {
      metrics_->out_of_memory
          .Add({{"namespace", job.namespace_name},
                {"profile", profile_label(job)},
                {"kind", cuda ? "cuda" : "host"}})
          .Increment();
    }
    if (const std::optional<double> error = relative_error(attempt)) {
      metrics_->errors
          .Add({{"gpu_product", attempt.gpu_model}, {"is_oom", cuda ? "true" : "false"}},
               prometheus::Histogram::BucketBoundaries{-1, -0.5, -0.25, -0.1, -0.05, 0, 0.05, 0.1, 0.25, 0.5,
                                                       1, 2})
          .Observe(*error);
    }
  }
}

}  // namespace plimsoll::controllers
