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
                                           std::function<void()> on_change) {
  kube::Reflector::Options options;
  options.observer = observer;
  options.resource = {
      .group = crds::kGroup, .version = crds::kVersion, .plural = plural, .namespaced = namespaced};
  options.keep.without({"metadata"}, {"managedFields"});
  options.on_change = [on_change = std::move(on_change)](const kube::Reflector::Change&) { on_change(); };
  return options;
}

}  // namespace

ClusterViewKeeper::ClusterViewKeeper(kube::Client& client, estimator::GpuCatalog catalog,
                                     estimator::ClusterViewStore& store, Observers observers)
    : catalog_(std::move(catalog)),
      store_(store),
      gpu_models_(client, reflector_options("gpumodels", false, observers.gpu_models, [this] { wake(); })),
      profiles_(client, reflector_options("memoryprofiles", true, observers.profiles, [this] { wake(); })) {}

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

void ClusterViewKeeper::wake() {
  const std::lock_guard lock(mutex_);
  dirty_ = true;
  changed_.notify_one();
}

void ClusterViewKeeper::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    bool synced = false;
    {
      std::unique_lock lock(mutex_);
      const auto limit = synced_ ? std::chrono::hours(24) : kLook;
      changed_.wait_for(lock, stop, limit, [this] { return dirty_; });
      // Later changes join this one.
      changed_.wait_for(lock, stop, kSettle, [] { return false; });
      dirty_ = false;
    }
    // Asked before the copies are taken, so that what counts as synced is in them.
    synced = gpu_models_.has_synced() && profiles_.has_synced();
    store_.set(estimator::make_cluster_view(catalog_, kube::trees_of(gpu_models_.snapshot()),
                                            kube::trees_of(profiles_.snapshot())));
    const std::lock_guard lock(mutex_);
    if (synced && !synced_) {
      log_info("Knew the cluster's GPUs", {{"gpuModels", std::to_string(gpu_models_.size())},
                                           {"memoryProfiles", std::to_string(profiles_.size())}});
    }
    synced_ = synced_ || synced;
  }
}

}  // namespace plimsoll::webhook
