// ClusterViewKeeper: keeps a ClusterViewStore up to date, by reflectors: of GPUModels, and of the MemoryProfiles
// of some or all namespaces.
//
//   ClusterViewKeeper keeper(client, catalog, store, {});
//   keeper.start();
//   ... if (keeper.has_synced()) ...
//   keeper.stop();
//
// A burst of changes (the first list, a rescheduled node pool) makes one new view, which shares the unchanged
// parts with the previous one. Each namespace has a quota of MemoryProfiles (webhook/profile_quota.h).
// Thread-safe except for start and stop; stop() waits. Client and store must outlive it.
#pragma once

#include <condition_variable>
#include <map>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "estimator/catalog/gpu_catalog.h"
#include "estimator/provisioner/cluster_view.h"
#include "kube/client.h"
#include "kube/reflector.h"
#include "kube/reflector_group.h"
#include "webhook/profile_quota.h"

namespace plimsoll::webhook {

class ClusterViewKeeper {
 public:
  // Of the reflectors, for metrics; each may be null and must outlive the keeper.
  struct Observers {
    kube::ReflectorObserver* gpu_models = nullptr;
    kube::ReflectorObserver* profiles = nullptr;
  };

  ClusterViewKeeper(kube::Client& client, estimator::GpuCatalog catalog, estimator::ClusterViewStore& store,
                    Observers observers, const std::vector<std::string>& namespaces = {});
  ~ClusterViewKeeper();  // stop()
  ClusterViewKeeper(const ClusterViewKeeper&) = delete;
  ClusterViewKeeper& operator=(const ClusterViewKeeper&) = delete;

  void start();
  void stop();

  // True once the store has a view of both first lists.
  bool has_synced() const;

 private:
  void gpu_models_changed();
  void profile_changed(const kube::Reflector::Change& change);
  void run(const std::stop_token& stop);

  estimator::ClusterViewBuilder builder_;  // of run()'s thread
  estimator::ClusterViewStore& store_;
  ProfileQuota quota_{{}};  // called by profiles_, one thread at a time
  kube::Reflector gpu_models_;
  kube::ReflectorGroup profiles_;

  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  // Changes that are not in the view yet.
  bool gpu_models_changed_ PLIMSOLL_GUARDED_BY(mutex_) = true;
  // By key, the last of each.
  std::map<std::string, kube::Reflector::Change> changed_profiles_ PLIMSOLL_GUARDED_BY(mutex_);
  bool synced_ PLIMSOLL_GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

}  // namespace plimsoll::webhook
