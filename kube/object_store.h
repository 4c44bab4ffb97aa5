// ObjectStore: the objects of one collection by key, with indexes: a named function says under which values
// an object is to be found again.
//
//   ObjectStore pods({{"owner", index_by_owner}, {"job", index_by_label("plimsoll.dev/job-name")}});
//   pods.set("ads/trainer-0", pod);
//   for (const SharedObject& pod : pods.by_index("owner", job_uid)) ...
//
// Objects are shared, immutable and packed (base/json/packed.h): what was read stays as it was. Read a few
// fields in place; take tree() of what is handed on. Any thread may read; one writes at a time.
#pragma once

#include <functional>
#include <map>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/json/packed.h"
#include "base/json/view.h"

namespace plimsoll::kube {

using SharedObject = PackedJson;

// "namespace/name", or "name" of what has no namespace.
std::string key_of(const JsonView& object);

// Copies of them to hand on and to change.
std::vector<Json> trees_of(const std::vector<SharedObject>& objects);

// The values under which an object is found in an index; none: not at all.
using IndexFunction = std::function<std::vector<std::string>(const JsonView&)>;

// Its namespace.
std::vector<std::string> index_by_namespace(const JsonView& object);
// The uid of the owner that controls it (metadata.ownerReferences with controller: true).
std::vector<std::string> index_by_owner(const JsonView& object);
// "namespace/value" of a label that it has, or "value" of what has no namespace.
IndexFunction index_by_label(const std::string& label);

class ObjectStore {
 public:
  using Indexers = std::map<std::string, IndexFunction>;

  explicit ObjectStore(Indexers indexers = {});
  ObjectStore(const ObjectStore&) = delete;
  ObjectStore& operator=(const ObjectStore&) = delete;

  SharedObject find(const std::string& key) const;  // null: not there
  std::vector<SharedObject> snapshot() const;       // by key
  // By key. The index must be one of those given at the start.
  std::vector<SharedObject> by_index(const std::string& index, const std::string& value) const;
  std::vector<std::string> keys() const;
  std::size_t size() const;

  // Both return what was there before, or null.
  SharedObject set(const std::string& key, SharedObject object);
  SharedObject remove(const std::string& key);

 private:
  using Objects = std::map<std::string, SharedObject>;
  using Entry = const Objects::value_type*;  // the map's nodes stay where they are
  struct Index {
    IndexFunction values_of;
    std::unordered_map<std::string, std::vector<Entry>> entries;  // each by key
  };

  static void add_to(Index& index, Entry entry);
  static void take_from(Index& index, Entry entry);

  mutable std::shared_mutex mutex_;
  Objects objects_;
  std::map<std::string, Index> indexes_;
};

}  // namespace plimsoll::kube
