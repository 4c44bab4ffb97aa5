// Store: the objects of the fake API server and the recent history of their changes, under one
// resourceVersion that counts up by one with each change.
//
//   Store store;
//   Outcome... store.create(key, object);  Store::Changes news = store.wait_changes("pods", after, ...);
//
// Objects are immutable and shared: readers keep their copy while writers replace it. The history is
// bounded by count and by bytes; requests for older changes fail as expired. Thread-safe.
#pragma once

#include <chrono>
#include <compare>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/json/json.h"

namespace plimsoll::testing::fake {

struct Object {
  Json json;         // metadata.resourceVersion included
  std::string text;  // the same as one line of JSON
  std::uint64_t version = 0;
};
using ObjectPtr = std::shared_ptr<const Object>;

struct Key {
  std::string storage;  // ResourceType::storage()
  std::string namespace_name;
  std::string name;
  auto operator<=>(const Key&) const = default;
};

enum class ChangeType { kAdded, kModified, kDeleted };

struct Change {
  std::uint64_t version = 0;
  ChangeType type = ChangeType::kAdded;
  Key key;
  ObjectPtr object;    // of kDeleted: the last state, with the version of the deletion
  ObjectPtr previous;  // null for kAdded
};

struct Snapshot {
  std::uint64_t version = 0;
  std::vector<ObjectPtr> objects;  // by namespace, then name
};

struct StoreOptions {
  std::size_t history_changes = 4096;
  std::size_t history_bytes = std::size_t{64} << 20;
};

class Store {
 public:
  explicit Store(StoreOptions options = {}) : options_(options) {}

  enum class Write { kDone, kExists, kMissing, kChanged };
  struct Written {
    Write result = Write::kDone;
    ObjectPtr object;  // the new state; of a removal the last one
  };
  struct Changes {
    bool expired = false;
    std::uint64_t up_to = 0;  // nothing of this storage lies between the last change and this version
    std::vector<Change> changes;
  };

  ObjectPtr get(const Key& key) const;
  // An empty namespace lists all of them.
  Snapshot list(const std::string& storage, const std::string& namespace_name) const;
  // The list at `version`; empty when that is older than the history.
  std::optional<Snapshot> list_at(const std::string& storage, const std::string& namespace_name,
                                  std::uint64_t version) const;
  std::uint64_t version() const;
  std::uint64_t oldest_version() const;  // changes after this one are still in the history

  Written create(const Key& key, Json object);
  // Fails with kChanged unless the object's version is `expected`.
  Written replace(const Key& key, std::uint64_t expected, Json object);
  Written remove(const Key& key, std::uint64_t expected);

  // Changes of one storage after `after`. Waits until there are some, until the deadline, or until `stopped`
  // returns true after a wake().
  Changes wait_changes(const std::string& storage, std::uint64_t after,
                       std::chrono::steady_clock::time_point deadline,
                       const std::function<bool()>& stopped) const;
  void wake();
  // Drops the history, as etcd's compaction does: watches from older versions then end with 410 Gone.
  void forget_history();

 private:
  ObjectPtr stamp(Json object, std::uint64_t version) const;
  void record(Change change);

  const StoreOptions options_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::map<Key, ObjectPtr> objects_;
  std::deque<Change> history_;  // consecutive versions
  std::size_t history_bytes_ = 0;
  std::uint64_t version_ = 1;
};

}  // namespace plimsoll::testing::fake
