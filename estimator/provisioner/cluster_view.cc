#include "estimator/provisioner/cluster_view.h"

#include <utility>

#include "base/log.h"

namespace plimsoll::estimator::inline provisioner {
namespace {

void log_ignored(const char* kind, const JsonView& object, const Error& why) {
  log_warning("Ignored an object that cannot be read",
              {{"kind", kind},
               {"namespace", text_member(object, {"metadata", "namespace"})},
               {"name", text_member(object, {"metadata", "name"})},
               {"problem", to_string(why)}});
}

}  // namespace

const crds::MemoryProfile* LearnedProfile::decoded() const {
  std::call_once(once_, [this] {
    Result<crds::MemoryProfile> profile = crds::decode_memory_profile(object_.tree());
    if (!profile) {
      log_ignored("MemoryProfile", *object_, profile.error());
      return;
    }
    decoded_ = *std::move(profile);
    decoded_->raw = Json();  // ten times as large as the decoded fields
  });
  return decoded_ ? &*decoded_ : nullptr;
}

const crds::MemoryProfile* ClusterView::profile_of(const std::string& namespace_name,
                                                   const std::string& family) const {
  const auto learned = profiles.find(namespace_name);
  if (family.empty() || learned == profiles.end()) {
    return nullptr;
  }
  for (const auto& [name, profile] : *learned->second) {
    if (profile->family() == family && profile->decoded() != nullptr) {
      return profile->decoded();
    }
  }
  return nullptr;
}

void ClusterViewBuilder::set_gpu_models(const std::vector<Json>& objects) {
  GpuCatalog extended = catalog_;  // finds the specs that are refused
  std::vector<crds::GpuModel> models;
  for (const Json& object : objects) {
    Result<crds::GpuModel> model = crds::decode_gpu_model(object);
    if (!model) {
      log_ignored("GPUModel", object, model.error());
      continue;
    }
    if (const Result<void> applied = extended.apply(*model); !applied) {
      // Its figures are not used. The GPUs in its status count if the model is known.
      log_warning("Ignored the spec of a GPUModel",
                  {{"name", model->name}, {"problem", to_string(applied.error())}});
    }
    models.push_back(*std::move(model));
  }
  gpus_ = inventory_of(models, catalog_);
}

ClusterView::ByName& ClusterViewBuilder::profiles_to_change(const std::string& namespace_name) {
  std::shared_ptr<ClusterView::ByName>& profiles = profiles_[namespace_name];
  if (own_.insert(namespace_name).second) {
    profiles = profiles == nullptr ? std::make_shared<ClusterView::ByName>()
                                   : std::make_shared<ClusterView::ByName>(*profiles);
  }
  return *profiles;
}

void ClusterViewBuilder::set_profile(const PackedJson& object) {
  const std::string namespace_name = text_member(*object, {"metadata", "namespace"});
  const std::string name = text_member(*object, {"metadata", "name"});
  std::string family = text_member(*object, {"spec", "family"});
  if (family.empty()) {
    remove_profile(namespace_name, name);
    return;
  }
  profiles_to_change(namespace_name)[name] =
      std::make_shared<const LearnedProfile>(object, std::move(family));
}

void ClusterViewBuilder::remove_profile(const std::string& namespace_name, const std::string& name) {
  const auto known = profiles_.find(namespace_name);
  if (known == profiles_.end() || !known->second->contains(name)) {
    return;
  }
  ClusterView::ByName& profiles = profiles_to_change(namespace_name);
  profiles.erase(name);
  if (profiles.empty()) {
    profiles_.erase(namespace_name);
    own_.erase(namespace_name);
  }
}

std::shared_ptr<const ClusterView> ClusterViewBuilder::view() {
  auto view = std::make_shared<ClusterView>();
  view->gpus = gpus_;
  view->profiles.insert(profiles_.begin(), profiles_.end());
  own_.clear();
  return view;
}

std::shared_ptr<const ClusterView> make_cluster_view(const GpuCatalog& catalog,
                                                     const std::vector<Json>& gpu_models,
                                                     const std::vector<Json>& memory_profiles) {
  ClusterViewBuilder builder(catalog);
  builder.set_gpu_models(gpu_models);
  for (const Json& object : memory_profiles) {
    builder.set_profile(PackedJson(object));
  }
  return builder.view();
}

std::shared_ptr<const ClusterView> ClusterViewStore::get() const {
  const MutexLock lock(mutex_);
  return view_;
}

void ClusterViewStore::set(std::shared_ptr<const ClusterView> view) {
  const MutexLock lock(mutex_);
  view_ = std::move(view);
}

}  // namespace plimsoll::estimator::provisioner
