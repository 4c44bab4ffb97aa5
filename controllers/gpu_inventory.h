// GpuInventoryController keeps the status of the GPUModel resources up to date: for every GPU model of
// schedulable nodes, the number of GPUs, the number that no pod has requested, the shapes of the nodes and
// the spellings of the product label. It creates the GPUModel of a model that is new in the cluster. A model
// whose nodes are gone keeps its object, with zeros.
//
//   GpuInventoryController inventory(client, estimator::GpuCatalog::built_in(), {});
//   inventory.start();
//   ...
//   inventory.stop();
//
// Level-triggered: it watches nodes, pods and GPUModels, and after any change (a burst is one change)
// compares the cluster with the objects. Failed writes are retried with back-off. One thread of its own and
// one for each watch. Call `start` and `stop` from one thread, `ready` from any. `stop` waits. The client
// must outlive it.
#pragma once

#include <prometheus/registry.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <set>
#include <stop_token>
#include <thread>

#include "base/backoff.h"
#include "base/mutex.h"
#include "estimator/catalog/gpu_catalog.h"
#include "estimator/catalog/inventory.h"
#include "kube/client.h"
#include "kube/event_recorder.h"
#include "kube/reflector.h"
#include "metrics/kubernetes_metrics.h"

namespace plimsoll::controllers {

class GpuInventoryController {
 public:
  struct Options {
    std::chrono::milliseconds burst{200};  // between two passes, at least
    std::chrono::minutes resync{10};       // a pass even when nothing has changed
    Backoff::Options retry{std::chrono::milliseconds(500), std::chrono::milliseconds(60'000), 0.5};
    kube::EventRecorder* events = nullptr;     // about invalid GPUModels; null: no events
    prometheus::Registry* registry = nullptr;  // null: no metrics
  };

  GpuInventoryController(kube::Client& client, estimator::GpuCatalog catalog, Options options);
  ~GpuInventoryController();
  GpuInventoryController(const GpuInventoryController&) = delete;
  GpuInventoryController& operator=(const GpuInventoryController&) = delete;

  void start();
  void stop();

  // True once a pass has succeeded.
  bool ready() const { return ready_; }

 private:
  struct Metrics;

  kube::Reflector::Options watched(kube::Reflector::Options options,
                                   metrics::ReflectorMetrics Metrics::*observer);
  void run(const std::stop_token& stop);
  Result<void> pass(const std::stop_token& stop);
  estimator::GpuCatalog catalog_with(const std::vector<crds::GpuModel>& resources);
  std::vector<crds::GpuModel> known_resources();
  Result<void> write(const std::vector<estimator::AvailableGpu>& present,
                     const std::vector<crds::GpuModel>& existing, const std::stop_token& stop);
  bool warn_once(const std::string& problem);  // false: it was logged before

  kube::Client& client_;
  const estimator::GpuCatalog catalog_;
  const Options options_;
  std::unique_ptr<Metrics> metrics_;

  Mutex mutex_;
  std::condition_variable_any wake_;
  bool changed_ PLIMSOLL_GUARDED_BY(mutex_) = true;

  std::set<std::string> warned_;  // the worker's thread only
  std::atomic<bool> ready_ = false;

  kube::Reflector nodes_;
  kube::Reflector pods_;
  kube::Reflector models_;
  std::jthread worker_;
};

}  // namespace plimsoll::controllers
