#include "estimator/cluster_view.h"

#include "base/log.h"

namespace plimsoll::estimator {

const crds::MemoryProfile* ClusterView::profile_of(const std::string& namespace_name,
                                                   const std::string& family) const {
  if (family.empty()) {
    return nullptr;
  }
  const auto found = profiles.find({namespace_name, family});
  return found == profiles.end() ? nullptr : &found->second;
}

std::shared_ptr<const ClusterView> make_cluster_view(const GpuCatalog& catalog,
                                                     const std::vector<Json>& gpu_models,
                                                     const std::vector<Json>& memory_profiles) {
  const auto leave_out = [](const char* kind, const Json& object, const Error& why) {
    log_warning("Left out an object that cannot be read",
                {{"kind", kind},
                 {"namespace", text_member(object, {"metadata", "namespace"})},
                 {"name", text_member(object, {"metadata", "name"})},
                 {"problem", to_string(why)}});
  };
  auto view = std::make_shared<ClusterView>();

  GpuCatalog extended = catalog;  // to tell which specs are refused
  std::vector<crds::GpuModel> models;
  for (const Json& object : gpu_models) {
    Result<crds::GpuModel> model = crds::decode_gpu_model(object);
    if (!model) {
      leave_out("GPUModel", object, model.error());
      continue;
    }
    if (const Result<void> applied = extended.apply(*model); !applied) {
      // Its figures are not used; the GPUs that its status counts still are, if the model is known.
      log_warning("Ignored the spec of a GPUModel",
                  {{"name", model->name}, {"problem", to_string(applied.error())}});
    }
    models.push_back(*std::move(model));
  }
  view->gpus = inventory_of(models, catalog);

  for (const Json& object : memory_profiles) {
    Result<crds::MemoryProfile> profile = crds::decode_memory_profile(object);
    if (!profile) {
      leave_out("MemoryProfile", object, profile.error());
      continue;
    }
    const std::pair key(profile->namespace_name, profile->family);
    const auto known = view->profiles.find(key);
    if (known == view->profiles.end() || profile->name < known->second.name) {
      view->profiles.insert_or_assign(key, *std::move(profile));
    }
  }
  return view;
}

std::shared_ptr<const ClusterView> ClusterViewStore::get() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

void ClusterViewStore::set(std::shared_ptr<const ClusterView> view) {
  const std::lock_guard lock(mutex_);
  view_ = std::move(view);
}

}  // namespace plimsoll::estimator
