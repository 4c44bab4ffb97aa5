#include "tests/fake_apiserver/store.h"

#include <algorithm>
#include <utility>

namespace plimsoll::testing::fake {

ObjectPtr Store::get(const Key& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(key);
  return found == objects_.end() ? nullptr : found->second;
}

Snapshot Store::list(const std::string& storage, const std::string& namespace_name) const {
  const std::lock_guard lock(mutex_);
  Snapshot snapshot;
  snapshot.version = version_;
  for (auto at = objects_.lower_bound(Key{storage, namespace_name, ""}); at != objects_.end(); ++at) {
    if (at->first.storage != storage ||
        (!namespace_name.empty() && at->first.namespace_name != namespace_name)) {
      break;
    }
    snapshot.objects.push_back(at->second);
  }
  return snapshot;
}

std::optional<Snapshot> Store::list_at(const std::string& storage, const std::string& namespace_name,
                                       std::uint64_t version) const {
  const std::lock_guard lock(mutex_);
  if (version + history_.size() < version_) {
    return std::nullopt;
  }
  std::map<Key, ObjectPtr> objects;
  for (auto at = objects_.lower_bound(Key{storage, "", ""});
       at != objects_.end() && at->first.storage == storage; ++at) {
    objects.insert(*at);
  }
  // Undo the changes, the latest first.
  for (auto change = history_.rbegin(); change != history_.rend() && change->version > version; ++change) {
    if (change->key.storage != storage) {
      continue;
    }
    if (change->previous == nullptr) {
      objects.erase(change->key);
    } else {
      objects[change->key] = change->previous;
    }
  }
  Snapshot snapshot;
  snapshot.version = version;
  for (const auto& [key, object] : objects) {
    if (namespace_name.empty() || key.namespace_name == namespace_name) {
      snapshot.objects.push_back(object);
    }
  }
  return snapshot;
}

std::uint64_t Store::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

std::uint64_t Store::oldest_version() const {
  const std::lock_guard lock(mutex_);
  return version_ - history_.size();
}

Store::Written Store::create(const Key& key, Json object) {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(key);
  if (found != objects_.end()) {
    return {Write::kExists, found->second};
  }
  ObjectPtr stored = stamp(std::move(object), version_ + 1);
  objects_[key] = stored;
  record({version_ + 1, ChangeType::kAdded, key, stored, nullptr});
  return {Write::kDone, std::move(stored)};
}

Store::Written Store::replace(const Key& key, std::uint64_t expected, Json object) {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(key);
  if (found == objects_.end()) {
    return {Write::kMissing, nullptr};
  }
  if (found->second->version != expected) {
    return {Write::kChanged, found->second};
  }
  ObjectPtr stored = stamp(std::move(object), version_ + 1);
  ObjectPtr previous = std::exchange(found->second, stored);
  record({version_ + 1, ChangeType::kModified, key, stored, std::move(previous)});
  return {Write::kDone, std::move(stored)};
}

Store::Written Store::remove(const Key& key, std::uint64_t expected) {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(key);
  if (found == objects_.end()) {
    return {Write::kMissing, nullptr};
  }
  if (found->second->version != expected) {
    return {Write::kChanged, found->second};
  }
  ObjectPtr previous = std::move(found->second);
  objects_.erase(found);
  ObjectPtr last = stamp(previous->json, version_ + 1);
  record({version_ + 1, ChangeType::kDeleted, key, last, std::move(previous)});
  return {Write::kDone, std::move(last)};
}

Store::Changes Store::wait_changes(const std::string& storage, std::uint64_t after,
                                   std::chrono::steady_clock::time_point deadline,
                                   const std::function<bool()>& stopped) const {
  std::unique_lock lock(mutex_);
  while (true) {
    Changes news;
    news.up_to = std::max(version_, after);
    if (after < version_ && after + history_.size() < version_) {
      news.expired = true;
      return news;
    }
    if (after < version_) {
      const std::size_t unseen = static_cast<std::size_t>(version_ - after);
      for (std::size_t i = history_.size() - unseen; i < history_.size(); ++i) {
        if (history_[i].key.storage == storage) {
          news.changes.push_back(history_[i]);
        }
      }
      if (!news.changes.empty()) {
        return news;
      }
      after = version_;
    }
    if (stopped() || changed_.wait_until(lock, deadline) == std::cv_status::timeout) {
      return news;
    }
  }
}

void Store::wake() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void Store::forget_history() {
  const std::lock_guard lock(mutex_);
  history_.clear();
  history_bytes_ = 0;
  changed_.notify_all();
}

ObjectPtr Store::stamp(Json object, std::uint64_t version) const {
  object["metadata"]["resourceVersion"] = std::to_string(version);
  auto stored = std::make_shared<Object>();
  stored->text = write_json(object);
  stored->json = std::move(object);
  stored->version = version;
  return stored;
}

void Store::record(Change change) {
  version_ = change.version;
  history_bytes_ += change.object->text.size();
  history_.push_back(std::move(change));
  while (history_.size() > options_.history_changes ||
         (history_.size() > 1 && history_bytes_ > options_.history_bytes)) {
    history_bytes_ -= history_.front().object->text.size();
    history_.pop_front();
  }
  changed_.notify_all();
}

}  // namespace plimsoll::testing::fake
