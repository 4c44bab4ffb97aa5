#include "controllers/gpu_inventory.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>

#include <map>
#include <random>

#include "base/catch_all.h"
#include "base/json/edit.h"
#include "base/log.h"
#include "controllers/inventory_plan.h"
#include "crds/training_job.h"
#include "metrics/families.h"

namespace plimsoll::controllers {
namespace {

const kube::Resource kNodes{"", "v1", "nodes", false};
const kube::Resource kPods{"", "v1", "pods", true};
const kube::Resource kGpuModels{crds::kGroup, crds::kVersion, "gpumodels", false};

// The number of problems that are remembered, so that each is logged once; when there are more, all are
// forgotten.
constexpr std::size_t kMaxWarnings = 1000;

}  // namespace

struct GpuInventoryController::Metrics {
  explicit Metrics(prometheus::Registry& registry)
      : gpus(metrics::gauges(registry, "plimsoll_inventory_gpus")),
        passes(metrics::counters(registry, "plimsoll_inventory_passes_total")),
        panics(metrics::reconcile_panics(registry, "gpu-inventory")),
        nodes(registry, "nodes"),
        pods(registry, "bound-pods"),
        models(registry, "gpumodels") {}

  void set(const std::vector<estimator::AvailableGpu>& present) {
    for (auto& [name, counts] : known) {
      counts = {};
    }
    for (const estimator::AvailableGpu& gpu : present) {
      known[resource_name(gpu.model.name)] = {gpu.total_gpus, gpu.free_gpus};
    }
    for (const auto& [name, counts] : known) {
      gpus.Add({{"gpu_model", name}, {"state", "total"}}).Set(static_cast<double>(counts.first));
      gpus.Add({{"gpu_model", name}, {"state", "free"}}).Set(static_cast<double>(counts.second));
    }
  }

  prometheus::Family<prometheus::Gauge>& gpus;
  prometheus::Family<prometheus::Counter>& passes;
  prometheus::Counter& panics;
  metrics::ReflectorMetrics nodes;
  metrics::ReflectorMetrics pods;
  metrics::ReflectorMetrics models;
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> known;  // total and free
};

GpuInventoryController::GpuInventoryController(kube::Client& client, estimator::GpuCatalog catalog,
                                               Options options)
    : client_(client),
      catalog_(std::move(catalog)),
      options_(options),
      metrics_(options.registry == nullptr ? nullptr : std::make_unique<Metrics>(*options.registry)),
      nodes_(client, watched({.resource = kNodes, .project = project_node}, &Metrics::nodes)),
      pods_(client, watched({.resource = kPods,
                             .field_selector = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed",
                             .project = project_pod},
                            &Metrics::pods)),
      models_(client, watched({.resource = kGpuModels}, &Metrics::models)) {}

GpuInventoryController::~GpuInventoryController() {
  stop();
}

kube::Reflector::Options GpuInventoryController::watched(kube::Reflector::Options options,
                                                         metrics::ReflectorMetrics Metrics::*observer) {
  options.observer = metrics_ == nullptr ? nullptr : &(metrics_.get()->*observer);
  options.on_change = [this](const kube::Reflector::Change&) {
    const MutexLock lock(mutex_);
    changed_ = true;
    wake_.notify_all();
  };
  return options;
}

void GpuInventoryController::start() {
  nodes_.start();
  pods_.start();
  models_.start();
  worker_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void GpuInventoryController::stop() {
  if (worker_.joinable()) {
    worker_.request_stop();
    worker_.join();
  }
  nodes_.stop();
  pods_.stop();
  models_.stop();
}

void GpuInventoryController::run(const std::stop_token& stop) {
  Backoff backoff(options_.retry, std::random_device{}());
  if (!nodes_.wait_for_sync(stop) || !pods_.wait_for_sync(stop) || !models_.wait_for_sync(stop)) {
    return;
  }
  while (!stop.stop_requested()) {
    {
      MutexLock lock(mutex_);
      wake_.wait_for(lock, stop, options_.resync, [this]() PLIMSOLL_REQUIRES(mutex_) { return changed_; });
      changed_ = false;
    }
    if (stop.stop_requested()) {
      return;
    }
    std::chrono::milliseconds pause = options_.burst;
    Result<void> passed;
    if (const std::optional<std::string> thrown = catch_all([&] { passed = pass(stop); })) {
      passed = Error(ErrorCode::kInternal, *thrown);
      if (metrics_) {
        metrics_->panics.Increment();
      }
    }
    if (metrics_) {
      metrics_->passes.Add({{"result", passed ? "ok" : "error"}}).Increment();
    }
    if (passed) {
      ready_ = true;
      backoff.reset();
    } else {
      // Conflicts are routine: the watch brings the newer object within moments.
      const bool routine = passed.error().code == ErrorCode::kConflict;
      log(routine ? LogLevel::kDebug : LogLevel::kWarning, "Failed to update the GPU inventory",
          {{"reason", to_string(passed.error())}});
      pause = backoff.next();
      const MutexLock lock(mutex_);
      changed_ = true;
    }
    kube::system_sleeper().sleep_for(pause, stop);
  }
}

bool GpuInventoryController::warn_once(const std::string& problem) {
  if (warned_.size() >= kMaxWarnings) {
    warned_.clear();
  }
  const bool is_new = warned_.insert(problem).second;
  if (is_new) {
    log_warning("The GPU inventory is incomplete", {{"reason", problem}});
  }
  return is_new;
}

std::vector<crds::GpuModel> GpuInventoryController::known_resources() {
  std::vector<crds::GpuModel> resources;
  for (const kube::SharedObject& object : models_.snapshot()) {
    Result<crds::GpuModel> decoded = Error();
    if (const std::optional<std::string> thrown =
            catch_all([&] { decoded = crds::decode_gpu_model(object.tree()); })) {
      decoded = Error(ErrorCode::kInternal, *thrown);
    }
    if (decoded) {
      resources.push_back(std::move(*decoded));
    } else if (warn_once("GPUModel " + kube::key_of(*object) + ": " + to_string(decoded.error())) &&
               options_.events != nullptr) {
      options_.events->record({.api_version = crds::kApiVersion,
                               .kind = "GPUModel",
                               .namespace_name = "",
                               .name = text_member(*object, {"metadata", "name"}),
                               .uid = text_member(*object, {"metadata", "uid"})},
                              kube::EventType::kWarning, "LeftOut",
                              "the GPU inventory does not know this model: " + to_string(decoded.error()));
    }
  }
  return resources;
}

estimator::GpuCatalog GpuInventoryController::catalog_with(const std::vector<crds::GpuModel>& resources) {
  estimator::GpuCatalog catalog = catalog_;
  for (const crds::GpuModel& resource : resources) {
    if (Result<void> applied = catalog.apply(resource); !applied) {
      warn_once(to_string(applied.error()));
    }
  }
  return catalog;
}

Result<void> GpuInventoryController::pass(const std::stop_token& stop) {
  const std::vector<crds::GpuModel> existing = known_resources();
  const estimator::GpuCatalog catalog = catalog_with(existing);
  std::vector<std::string> unknown;
  const std::vector<estimator::AvailableGpu> present = estimator::take_inventory(
      count_nodes(kube::trees_of(nodes_.snapshot()), kube::trees_of(pods_.snapshot())), catalog, &unknown);
  for (const std::string& label : unknown) {
    warn_once(label.empty() ? "nodes have GPUs but no product label; does GPU feature discovery run?"
                            : "no GPU model is known by the label " + label +
                                  "; create a GPUModel that lists it in spec.productLabels");
  }
  if (metrics_) {
    metrics_->set(present);
  }
  return write(present, existing, stop);
}

// Tries every write, and returns the first error.
Result<void> GpuInventoryController::write(const std::vector<estimator::AvailableGpu>& present,
                                           const std::vector<crds::GpuModel>& existing,
                                           const std::stop_token& stop) {
  const kube::CallOptions call{.field_manager = "plimsoll.dev/inventory", .stop = stop};
  Result<void> outcome;
  for (InventoryWrite& write : plan_inventory(present, existing)) {
    Result<Json> object = std::move(write.object);
    if (write.kind == InventoryWrite::Kind::kCreate) {
      object = client_.create(kGpuModels, "", *object, call);
      if (object) {
        set_member(*object, "status", write.status);
        log_info("Found a GPU model", {{"gpuModel", write.name}});
      } else if (object.error().code == ErrorCode::kAlreadyExists) {
        continue;  // newer than our copy, or one that cannot be decoded until its owner repairs it
      }
    }
    if (object) {
      object = client_.update(kGpuModels, "", *object, "status", call);
    }
    if (!object && object.error().code == ErrorCode::kInvalid) {
      warn_once(to_string(object.error().within("GPUModel " + write.name)));  // repeating it would not help
    } else if (!object && outcome) {
      outcome = object.error().within("write the GPUModel " + write.name);
    }
  }
  return outcome;
}

}  // namespace plimsoll::controllers
