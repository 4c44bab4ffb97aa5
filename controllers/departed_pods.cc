#include "controllers/departed_pods.h"

#include <algorithm>

#include "kube/object_store.h"

namespace plimsoll::controllers {

using kube::namespace_of;

// The larger of its shares of the two limits.
double DepartedPods::size_of(const Share& share) const {
  return static_cast<double>(share.pods.size()) / static_cast<double>(limits_.pods) +
         static_cast<double>(share.bytes.count) / static_cast<double>(limits_.bytes.count);
}

std::list<DepartedPods::Entry>::iterator DepartedPods::remove(Share& share,
                                                              std::list<Entry>::iterator entry) {
  --pods_;
  bytes_ -= entry->bytes;
  share.bytes -= entry->bytes;
  return share.pods.erase(entry);
}

void DepartedPods::remember(const std::string& child_key, const kube::SharedObject& pod) {
  const Bytes bytes{static_cast<std::int64_t>(write_json(pod.tree()).size())};
  const MutexLock lock(mutex_);
  Share& share = shares_[namespace_of(child_key)];
  share.pods.push_back({child_key, pod, bytes});
  share.bytes += bytes;
  ++pods_;
  bytes_ += bytes;
  while (pods_ > limits_.pods || bytes_ > limits_.bytes) {
    const auto largest = std::max_element(
        shares_.begin(), shares_.end(),
        [this](const auto& a, const auto& b) { return size_of(a.second) < size_of(b.second); });
    remove(largest->second, largest->second.pods.begin());
    if (largest->second.pods.empty()) {
      shares_.erase(largest);
    }
  }
}

std::vector<Json> DepartedPods::of(const std::string& child_key) const {
  const MutexLock lock(mutex_);
  std::vector<Json> pods;
  if (const auto share = shares_.find(namespace_of(child_key)); share != shares_.end()) {
    for (const Entry& entry : share->second.pods) {
      if (entry.child_key == child_key) {
        pods.push_back(entry.pod.tree());
      }
    }
  }
  return pods;
}

void DepartedPods::forget(const std::string& child_key) {
  const MutexLock lock(mutex_);
  const auto share = shares_.find(namespace_of(child_key));
  if (share == shares_.end()) {
    return;
  }
  std::list<Entry>& pods = share->second.pods;
  for (auto entry = pods.begin(); entry != pods.end();) {
    entry = entry->child_key == child_key ? remove(share->second, entry) : std::next(entry);
  }
  if (pods.empty()) {
    shares_.erase(share);
  }
}

}  // namespace plimsoll::controllers
