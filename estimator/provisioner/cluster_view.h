// ClusterView: the GPUs of the cluster and what was learned of each model family, for the decisions of webhook
// and controllers. Immutable: a decision holds one view until it ends, so that its inputs are consistent while
// reflectors make the next view.
//
//   ClusterViewBuilder builder(catalog);
//   builder.set_profile(object);                            // on each change
//   store.set(builder.view());
//   std::shared_ptr<const ClusterView> view = store.get();  // once a decision
//
// Views share what did not change: a change of one MemoryProfile copies only the pointers of its namespace. A
// profile is decoded once for all views, when a decision first needs its family.
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

// The most MemoryProfiles of one namespace that views hold and that the operator makes.
inline constexpr std::size_t kProfilesOfNamespace = 128;

// A MemoryProfile in a view, packed until a decision needs it.
class LearnedProfile {
 public:
  LearnedProfile(PackedJson object, std::string family)
      : object_(std::move(object)), family_(std::move(family)) {}
  LearnedProfile(const LearnedProfile&) = delete;
  LearnedProfile& operator=(const LearnedProfile&) = delete;

  const std::string& family() const { return family_; }
  // Null when it cannot be read, which is logged once. Any thread.
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

  // The first by name of a family's profiles. Null when nothing was learned yet.
  const crds::MemoryProfile* profile_of(const std::string& namespace_name, const std::string& family) const;
};

// Makes views. Skips and logs an object that cannot be read: a bad GPUModel must not hide the others.
class ClusterViewBuilder {
 public:
  explicit ClusterViewBuilder(GpuCatalog catalog) : catalog_(std::move(catalog)) {}

  void set_gpu_models(const std::vector<Json>& objects);
  // An object without a family counts as removed.
  void set_profile(const PackedJson& object);
  void remove_profile(const std::string& namespace_name, const std::string& name);
  std::shared_ptr<const ClusterView> view();

 private:
  ClusterView::ByName& profiles_to_change(const std::string& namespace_name);

  const GpuCatalog catalog_;
  std::vector<AvailableGpu> gpus_;
  // By namespace; those in `own_` are in no view yet and may be changed.
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
