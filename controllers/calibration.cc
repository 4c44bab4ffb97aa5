#include "controllers/calibration.h"
#include "metrics/families.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>

#include <algorithm>

#include "base/catch_all.h"
#include "base/json/edit.h"
#include "base/log.h"
#include "controllers/dcgm.h"
#include "crds/gpu_model.h"
#include "estimator/provisioner/cluster_view.h"

namespace plimsoll::controllers {
namespace {

const kube::Resource kProfiles{crds::kGroup, crds::kVersion, "memoryprofiles", true};
constexpr const char* kFieldManager = "plimsoll-calibration";

// Uids whose attempts are in the metrics; beyond so many all are forgotten, and their attempts before the
// start of the process do not count again.
constexpr std::size_t kMaxCounted = 100'000;

kube::Reflector::Options reflect(const char* plural, bool namespaced) {
  kube::Reflector::Options options;
  options.resource = {crds::kGroup, crds::kVersion, plural, namespaced};
  return options;
}

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

}  // namespace

struct CalibrationController::Metrics {
  explicit Metrics(prometheus::Registry& registry)
      : errors(metrics::histograms(registry, "plimsoll_estimate_relative_error")),
        out_of_memory(metrics::counters(registry, "plimsoll_oom_detected_total")),
        panics(metrics::reconcile_panics(registry, "calibration")) {}

  prometheus::Family<prometheus::Histogram>& errors;
  prometheus::Family<prometheus::Counter>& out_of_memory;
  prometheus::Counter& panics;
};

CalibrationController::CalibrationController(kube::Client& client, estimator::GpuCatalog catalog,
                                             Options options)
    : client_(client),
      catalog_(std::move(catalog)),
      options_(options),
      metrics_(options.registry == nullptr ? nullptr : std::make_unique<Metrics>(*options.registry)),
      queue_metrics_(options.registry == nullptr
                         ? nullptr
                         : std::make_unique<metrics::QueueMetrics>(*options.registry, "calibration")),
      queue_({.retries = options.retries, .clock = options.clock, .observer = queue_metrics_.get()}),
      jobs_(client,
            [this] {
              kube::Reflector::Options jobs = reflect("trainingjobs", true);
              jobs.keep = slim_job();
              jobs.on_change = [this](const kube::Reflector::Change& change) { queue_.add(change.key); };
              return jobs;
            }()),
      profiles_(client,
                [this] {
                  kube::Reflector::Options profiles = reflect("memoryprofiles", true);
                  profiles.on_change = [this](const kube::Reflector::Change& change) {
                    if (change.kind == kube::Reflector::Change::Kind::kRemoved) {
                      learn_again(text_member(*change.object, {"metadata", "namespace"}),
                                  text_member(*change.object, {"spec", "family"}));
                    }
                  };
                  return profiles;
                }()),
      gpu_models_(client, reflect("gpumodels", false)) {}

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

// When a profile is deleted, its jobs go into the next one.
void CalibrationController::learn_again(const std::string& namespace_name, const std::string& family) {
  for (const kube::SharedObject& job : jobs_.snapshot()) {
    if (text_member(*job, {"metadata", "namespace"}) == namespace_name &&
        text_member(*job, {"spec", "model", "family"}) == family) {
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
          {{"job", *key}, {"reason", to_string(done.error())}});
      queue_.add_rate_limited(*key);
    }
    queue_.done(*key);
  }
}

void CalibrationController::report_exception(const std::string& key, const std::string& thrown) {
  if (metrics_) {
    metrics_->panics.Increment();
  }
  const kube::SharedObject object = jobs_.find(key);
  if (object != nullptr && options_.events != nullptr) {
    options_.events->record({.api_version = crds::kApiVersion,
                             .kind = "TrainingJob",
                             .namespace_name = text_member(*object, {"metadata", "namespace"}),
                             .name = text_member(*object, {"metadata", "name"}),
                             .uid = text_member(*object, {"metadata", "uid"})},
                            kube::EventType::kWarning, "CalibrationFailed",
                            "Plimsoll failed to learn from this job and will try again: " + thrown);
  }
}

Result<void> CalibrationController::reconcile(const std::string& key, const std::stop_token& stop) {
  const kube::SharedObject object = jobs_.find(key);
  if (object == nullptr) {
    return {};
  }
  LearnedJob job{.uid = text_member(*object, {"metadata", "uid"}),
                 .name = text_member(*object, {"metadata", "name"}),
                 .failure_policy = crds::decode_failure_policy(*object),
                 .status = crds::decode_status(object.tree())};
  if (job.uid.empty() || std::none_of(job.status.attempts.begin(), job.status.attempts.end(), has_ended)) {
    return {};
  }
  const std::string namespace_name = text_member(*object, {"metadata", "namespace"});
  const std::string family = text_member(*object, {"spec", "model", "family"});
  count(job, namespace_name);
  return family.empty() ? Result<void>() : learn_from(job, namespace_name, family, stop);
}

Result<void> CalibrationController::learn_from(const LearnedJob& job, const std::string& namespace_name,
                                               const std::string& family, const std::stop_token& stop) {
  const auto known_of = [&](const std::vector<crds::ProfileSample>& samples) {
    const auto known = std::find_if(samples.begin(), samples.end(), [&](const crds::ProfileSample& sample) {
      return sample.job_uid == job.uid;
    });
    return known == samples.end() ? nullptr : &*known;
  };
  Json profile;
  std::size_t of_namespace = 0;
  for (const kube::SharedObject& one : profiles_.snapshot()) {
    if (text_member(*one, {"metadata", "namespace"}) != namespace_name) {
      continue;
    }
    ++of_namespace;
    // By name, so that the webhook and the operator use the same one of several.
    if (text_member(*one, {"spec", "family"}) == family) {
      profile = one.tree();
      break;
    }
  }
  if (profile.isNull() && of_namespace >= estimator::kProfilesOfNamespace) {
    // A limit on made-up families, for the API server and for those that watch it.
    log_warning("Learned nothing from a job: its namespace has too many MemoryProfiles",
                {{"job", namespace_name + "/" + job.name},
                 {"family", family},
                 {"profiles", std::to_string(of_namespace)}});
    return {};
  }
  std::vector<crds::ProfileSample> samples = crds::decode_samples(profile);
  const crds::ProfileSample* known = known_of(samples);
  const std::vector<estimator::AvailableGpu> present = gpus();
  if (!sample_of(job, known, present)) {
    return {};
  }
  LearnedJob enriched = job;
  if (options_.prometheus != nullptr) {
    read_dcgm_peaks(enriched, namespace_name, known == nullptr ? -1 : known->last_attempt, stop);
  }
  if (profile.isNull()) {
    Result<Json> made = profile_of(namespace_name, family, stop);
    if (!made) {
      return made.error();
    }
    profile = *std::move(made);
    samples = crds::decode_samples(profile);
    known = known_of(samples);
  }
  std::optional<crds::ProfileSample> sample = sample_of(enriched, known, present);
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
  kube::CallOptions call;
  call.field_manager = kFieldManager;
  call.stop = stop;
  const Result<Json> changed = std::move(edit).take();
  const Result<Json> written =
      changed ? client_.update(kProfiles, namespace_name, *changed, "status", call) : changed;
  if (!written) {
    return written.error().within("write the MemoryProfile of " + family);
  }
  log_info("Learned from a job", {{"job", namespace_name + "/" + job.name}, {"family", family}});
  return {};
}

// The family's profile, which is not in the cache: created, or found.
Result<Json> CalibrationController::profile_of(const std::string& namespace_name, const std::string& family,
                                               const std::stop_token& stop) {
  kube::CallOptions call;
  call.field_manager = kFieldManager;
  call.stop = stop;
  Result<Json> made = Error(ErrorCode::kAlreadyExists, "");
  for (const std::string& name : {profile_name(family), profile_name(family, true)}) {
    JsonObject profile;
    profile["apiVersion"] = crds::kApiVersion;
    profile["kind"] = "MemoryProfile";
    profile["metadata"]["name"] = name;
    profile["metadata"]["namespace"] = namespace_name;
    profile["spec"]["family"] = family;
    made = client_.create(kProfiles, namespace_name, profile, call);
    if (made || made.error().code != ErrorCode::kAlreadyExists) {
      break;
    }
    Result<Json> there = client_.get(kProfiles, namespace_name, name, call);
    if (!there || text_member(*there, {"spec", "family"}) == family) {
      return there;
    }
  }
  return made ? std::move(made) : made.error().within("create the MemoryProfile of " + family);
}

// Prometheus may have no answer; then there are no DCGM figures.
void CalibrationController::read_dcgm_peaks(LearnedJob& job, const std::string& namespace_name,
                                            std::int64_t after, const std::stop_token& stop) const {
  kube::CallOptions call;
  call.timeout = options_.prometheus_timeout;
  call.stop = stop;
  for (crds::Attempt& attempt : job.status.attempts) {
    if (attempt.number <= after || !has_ended(attempt)) {
      continue;
    }
    const Result<std::optional<Bytes>> peak =
        dcgm_peak(*options_.prometheus, namespace_name, job.name, attempt, call);
    if (!peak) {
      log_warning("Learned without DCGM's figures", {{"reason", to_string(peak.error())}});
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

// Puts each attempt that has ended since the start into the metrics, once.
void CalibrationController::count(const LearnedJob& job, const std::string& namespace_name) {
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
      metrics_->out_of_memory.Add({{"namespace", namespace_name}, {"kind", cuda ? "cuda" : "host"}})
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
