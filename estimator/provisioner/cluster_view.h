// ClusterView: what webhook and controllers know of the cluster while they decide: the GPUs that are there,
// and what was learned of each model family. Immutable; a decision holds one for its whole length, so that it
// rests on one consistent state while reflectors bring the next.
//
//   ClusterViewBuilder builder(catalog);
//   builder.set_profile(object);                            // on each change, and nothing else
//   store.set(builder.view());
//   std::shared_ptr<const ClusterView> view = store.get();  // once a decision
//
// Views share what did not change: a change of one MemoryProfile copies the pointers to those of its
// namespace. A profile is decoded when a decision first asks for its family, once for all views.
//
// Thread-safety: ClusterViewStore from any thread; views are read-only; a builder is for one thread.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "base/json/packed.h"
#include "base/mutex.h"
#include "crds/memory_profile.h"
#include "estimator/catalog/gpu_catalog.h"
#include "estimator/catalog/inventory.h"

namespace plimsoll::estimator::inline provisioner {

// MemoryProfiles of a namespace that views hold, and that the operator makes.
inline constexpr std::size_t kProfilesOfNamespace = 128;

// A MemoryProfile as it lies in a view: packed until somebody needs it.
class LearnedProfile {
 public:
  LearnedProfile(PackedJson object, std::string family)
      : object_(std::move(object)), family_(std::move(family)) {}
  LearnedProfile(const LearnedProfile&) = delete;
  LearnedProfile& operator=(const LearnedProfile&) = delete;

  const std::string& family() const { return family_; }
  // Null: it cannot be read, which is logged once. Any thread.
  const crds::MemoryProfile* decoded() const;

 private:
  const PackedJson object_;
  const std::string family_;
  mutable std::once_flag once_;
  mutable std::optional<crds::MemoryProfile> decoded_;
};

struct ClusterView {
  using ByName = std::map<std::string, std::shared_ptr<const LearnedProfile>>;

  std::vector<AvailableGpu> gpus;
  std::map<std::string, std::shared_ptr<const ByName>> profiles;  // by namespace

  // Of several profiles of one family the first by name holds. Null: nothing was learned yet.
  const crds::MemoryProfile* profile_of(const std::string& namespace_name, const std::string& family) const;
};

// Makes one view after another. An object that cannot be read is left out and logged: a bad GPUModel must not
// take the others from the jobs.
class ClusterViewBuilder {
 public:
  explicit ClusterViewBuilder(GpuCatalog catalog) : catalog_(std::move(catalog)) {}

  void set_gpu_models(const std::vector<Json>& objects);
  // Without a family it counts as removed.
  void set_profile(const PackedJson& object);
  void remove_profile(const std::string& namespace_name, const std::string& name);
  std::shared_ptr<const ClusterView> view();

 private:
  ClusterView::ByName& profiles_to_change(const std::string& namespace_name);

  const GpuCatalog catalog_;
  std::vector<AvailableGpu> gpus_;
  // By namespace; those in `own_` are in no view yet, and may be changed.
  std::map<std::string, std::shared_ptr<ClusterView::ByName>> profiles_;
  std::set<std::string> own_;
};

// A view of these objects, as the API server gives them.
std::shared_ptr<const ClusterView> make_cluster_view(const GpuCatalog& catalog,
                                                     const std::vector<Json>& gpu_models,
                                                     const std::vector<Json>& memory_profiles);

class ClusterViewStore {
 public:
  // Empty at first, never null.
  std::shared_ptr<const ClusterView> get() const;
  void set(std::shared_ptr<const ClusterView> view);

 private:
  mutable Mutex mutex_;
  std::shared_ptr<const ClusterView> view_ PLIMSOLL_GUARDED_BY(mutex_) =
      std::make_shared<const ClusterView>();
};

}  // namespace plimsoll::estimator::provisioner
