// ClusterViewKeeper: keeps a ClusterViewStore at what the API server says, by two reflectors: GPUModels and
// the MemoryProfiles of all namespaces.
//
//   ClusterViewKeeper keeper(client, catalog, store);
//   keeper.start();
//   ... if (keeper.has_synced()) ...
//   keeper.stop();
//
// A burst of changes (the first list, a rescheduled node pool) makes one new view, not one a change.
// Thread-safe but for start and stop; stop() waits. Client and store must outlive it.
#pragma once

#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "estimator/catalog/gpu_catalog.h"
#include "estimator/cluster_view.h"
#include "kube/client.h"
#include "kube/reflector.h"

namespace plimsoll::webhook {

class ClusterViewKeeper {
 public:
  // Of the reflectors, for metrics; each may be null, and must outlive the keeper.
  struct Observers {
    kube::ReflectorObserver* gpu_models = nullptr;
    kube::ReflectorObserver* profiles = nullptr;
  };

  ClusterViewKeeper(kube::Client& client, estimator::GpuCatalog catalog, estimator::ClusterViewStore& store,
                    Observers observers);
  ClusterViewKeeper(kube::Client& client, estimator::GpuCatalog catalog, estimator::ClusterViewStore& store)
      : ClusterViewKeeper(client, std::move(catalog), store, Observers()) {}
  ~ClusterViewKeeper();  // stop()
  ClusterViewKeeper(const ClusterViewKeeper&) = delete;
  ClusterViewKeeper& operator=(const ClusterViewKeeper&) = delete;

  void start();
  void stop();

  // True once a view of both first lists is in the store.
  bool has_synced() const;

 private:
  void wake();
  void run(const std::stop_token& stop);

  const estimator::GpuCatalog catalog_;
  estimator::ClusterViewStore& store_;
  kube::Reflector gpu_models_;
  kube::Reflector profiles_;

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  bool dirty_ = false;   // guarded by mutex_
  bool synced_ = false;  // guarded by mutex_
  std::jthread thread_;
};

}  // namespace plimsoll::webhook
