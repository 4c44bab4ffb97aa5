#include "webhook/cluster_view_keeper.h"

#include <chrono>
#include <utility>
#include <vector>

#include "base/log.h"
#include "crds/training_job.h"

namespace plimsoll::webhook {
namespace {

// Changes within this time make one view.
constexpr std::chrono::milliseconds kSettle{20};
// The reflectors tell of changes, not of a first list that is empty: that is looked for.
constexpr std::chrono::milliseconds kLook{100};

kube::Reflector::Options reflector_options(const char* plural, bool namespaced,
                                           kube::ReflectorObserver* observer,
                                           kube::Reflector::Handler on_change) {
  kube::Reflector::Options options;
  options.observer = observer;
  options.resource = {
      .group = crds::kGroup, .version = crds::kVersion, .plural = plural, .namespaced = namespaced};
  options.on_change = std::move(on_change);
  return options;
}

kube::Reflector::Options without_managed_fields(kube::Reflector::Options options) {
  options.keep.without({"metadata"}, {"managedFields"});
  return options;
}

kube::Reflector::Options within_quota(kube::Reflector::Options options, ProfileQuota& quota) {
  options.project = [&quota](const JsonView& profile) { return quota.project(profile); };
  return options;
}

}  // namespace

ClusterViewKeeper::ClusterViewKeeper(kube::Client& client, estimator::GpuCatalog catalog,
                                     estimator::ClusterViewStore& store, Observers observers)
    : builder_(std::move(catalog)),
      store_(store),
      gpu_models_(client, without_managed_fields(reflector_options(
                              "gpumodels", false, observers.gpu_models,
                              [this](const kube::Reflector::Change&) { gpu_models_changed(); }))),
      profiles_(client, within_quota(reflector_options("memoryprofiles", true, observers.profiles,
                                                       [this](const kube::Reflector::Change& change) {
                                                         profile_changed(change);
                                                       }),
                                     quota_)) {}

ClusterViewKeeper::~ClusterViewKeeper() {
  stop();
}

void ClusterViewKeeper::start() {
  gpu_models_.start();
  profiles_.start();
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void ClusterViewKeeper::stop() {
  if (!thread_.joinable()) {
    return;
  }
  thread_.request_stop();
  thread_.join();
  gpu_models_.stop();
  profiles_.stop();
}

bool ClusterViewKeeper::has_synced() const {
  const std::lock_guard lock(mutex_);
  return synced_;
}

void ClusterViewKeeper::gpu_models_changed() {
  const std::lock_guard lock(mutex_);
  gpu_models_changed_ = true;
  changed_.notify_one();
}

void ClusterViewKeeper::profile_changed(const kube::Reflector::Change& change) {
  if (change.kind == kube::Reflector::Change::Kind::kRemoved) {
    quota_.forget(change.key);
  } else if (change.object == change.before) {
    return;  // told again
  }
  const std::lock_guard lock(mutex_);
  changed_profiles_.insert_or_assign(change.key, change);
  changed_.notify_one();
}

void ClusterViewKeeper::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    // OriginalRequest before the changes are taken, so that what counts as synced is in them.
    const bool synced = gpu_models_.has_synced() && profiles_.has_synced();
    bool gpu_models_changed = false;
    std::map<std::string, kube::Reflector::Change> profiles;
    {
      const std::lock_guard lock(mutex_);
      std::swap(gpu_models_changed, gpu_models_changed_);
      profiles.swap(changed_profiles_);
    }
    if (gpu_models_changed) {
      builder_.set_gpu_models(kube::trees_of(gpu_models_.snapshot()));
    }
    for (const auto& [key, change] : profiles) {
      if (change.kind == kube::Reflector::Change::Kind::kSet) {
        builder_.set_profile(change.object);
      } else {
        const std::size_t slash = key.find('/');
        builder_.remove_profile(key.substr(0, slash), key.substr(slash + 1));
      }
    }
    if (gpu_models_changed || !profiles.empty()) {
      store_.set(builder_.view());
    }
    std::unique_lock lock(mutex_);
    if (synced && !synced_) {
      log_info("Knew the cluster's GPUs",
               {{"gpuModels", gpu_models_.size()}, {"memoryProfiles", profiles_.size()}});
      synced_ = true;
    }
    const auto limit = synced_ ? std::chrono::hours(24) : kLook;
    const auto dirty = [this] { return gpu_models_changed_ || !changed_profiles_.empty(); };
    if (changed_.wait_for(lock, stop, limit, dirty)) {
      // Later changes join this one.
      changed_.wait_for(lock, stop, kSettle, [] { return false; });
    }
  }
}

}  // namespace plimsoll::webhook
