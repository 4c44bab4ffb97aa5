// ClusterView: what webhook and controllers know of the cluster while they decide: the GPUs that are there,
// and what was learned of each model family. Immutable; a decision holds one for its whole length, so that it
// rests on one consistent state while reflectors bring the next.
//
//   ClusterViewStore store;
//   store.set(make_cluster_view(catalog, gpu_models, memory_profiles));   // on every change
//   std::shared_ptr<const ClusterView> view = store.get();                // once a decision
//
// Thread-safety: ClusterViewStore from any thread; views are read-only.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "crds/memory_profile.h"
#include "estimator/catalog/gpu_catalog.h"
#include "estimator/catalog/inventory.h"

namespace plimsoll::estimator {

struct ClusterView {
  std::vector<AvailableGpu> gpus;
  std::map<std::pair<std::string, std::string>, crds::MemoryProfile> profiles;  // by namespace and family

  // Null: nothing was learned yet.
  const crds::MemoryProfile* profile_of(const std::string& namespace_name, const std::string& family) const;
};

// The objects as the API server gives them. One that cannot be read is left out and logged: a bad GPUModel
// must not take the others from the jobs. Of two profiles of one family the first by name holds.
std::shared_ptr<const ClusterView> make_cluster_view(const GpuCatalog& catalog,
                                                     const std::vector<Json>& gpu_models,
                                                     const std::vector<Json>& memory_profiles);

class ClusterViewStore {
 public:
  // Empty at first, never null.
  std::shared_ptr<const ClusterView> get() const;
  void set(std::shared_ptr<const ClusterView> view);

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const ClusterView> view_ = std::make_shared<const ClusterView>();
};

}  // namespace plimsoll::estimator
