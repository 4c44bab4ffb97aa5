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
// How often to check for the first lists: an empty list makes no change.
constexpr std::chrono::milliseconds kSyncPoll{100};

kube::Resource resource(const char* plural, bool namespaced) {
  return {.group = crds::kGroup, .version = crds::kVersion, .plural = plural, .namespaced = namespaced};
}

}  // namespace

ClusterViewKeeper::ClusterViewKeeper(kube::Client& client, estimator::GpuCatalog catalog,
                                     estimator::ClusterViewStore& store, Observers observers,
                                     const std::vector<std::string>& namespaces)
    : builder_(std::move(catalog)),
      store_(store),
      gpu_models_(client, {.resource = resource("gpumodels", false),
                           .keep = JsonSelection().without({"metadata"}, {"managedFields"}),
                           .on_change = [this](const auto&) { gpu_models_changed(); },
                           .observer = observers.gpu_models}),
      profiles_(client,
                {.resource = resource("memoryprofiles", true),
                 .project = [this](const JsonView& profile) { return quota_.project(profile); },
                 .on_change = [this](const auto& change) { profile_changed(change); },
                 .observer = observers.profiles},
                namespaces) {}

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
  const MutexLock lock(mutex_);
  return synced_;
}

void ClusterViewKeeper::gpu_models_changed() {
  const MutexLock lock(mutex_);
  gpu_models_changed_ = true;
  changed_.notify_one();
}

void ClusterViewKeeper::profile_changed(const kube::Reflector::Change& change) {
  if (change.kind == kube::Reflector::Change::Kind::kRemoved) {
    quota_.forget(change.key);
  } else if (change.object == change.before) {
    return;  // a resync
  }
  const MutexLock lock(mutex_);
  changed_profiles_.insert_or_assign(change.key, change);
  changed_.notify_one();
}

void ClusterViewKeeper::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    // Read before the changes are taken, so that they include both first lists when it is true.
    const bool synced = gpu_models_.has_synced() && profiles_.has_synced();
    bool gpu_models_changed = false;
    std::map<std::string, kube::Reflector::Change> profiles;
    {
      const MutexLock lock(mutex_);
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
        const std::string namespace_name = kube::namespace_of(key);
        builder_.remove_profile(namespace_name, key.substr(namespace_name.size() + 1));
      }
    }
    if (gpu_models_changed || !profiles.empty()) {
      store_.set(builder_.view());
    }
    MutexLock lock(mutex_);
    if (synced && !synced_) {
      log_info("Loaded the cluster's GPU models and memory profiles",
               {{"gpuModels", gpu_models_.size()}, {"memoryProfiles", profiles_.size()}});
      synced_ = true;
    }
    const auto limit = synced_ ? std::chrono::hours(24) : kSyncPoll;
    const auto dirty = [this]() PLIMSOLL_REQUIRES(mutex_) {
      return gpu_models_changed_ || !changed_profiles_.empty();
    };
    if (changed_.wait_for(lock, stop, limit, dirty)) {
      // Wait for more changes of the same burst.
      changed_.wait_for(lock, stop, kSettle, [] { return false; });
    }
  }
}

}  // namespace plimsoll::webhook
