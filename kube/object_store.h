// ObjectStore: the objects of one collection by key, with indexes: the values under which an object is found,
// by a named function.
//
//   ObjectStore pods({{"owner", index_by_owner}, {"job", index_by_label("plimsoll.dev/job-name")}});
//   pods.set("ads/trainer-0", pod);
//   for (const SharedObject& pod : pods.by_index("owner", job_uid)) ...
//
// Objects are shared, immutable and packed (base/json/packed.h): a caller's object never changes. Read a few
// fields in place; use tree() to pass on a whole object. Any thread may read; one writes at a time.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/json/packed.h"
#include "base/json/view.h"
#include "base/mutex.h"

namespace plimsoll::kube {

using SharedObject = PackedJson;

// "namespace/name", or "name" of an object without namespace.
std::string key_of(const JsonView& object);
// The namespace of such a key; empty where there is none.
std::string namespace_of(const std::string& key);

// Copies, to pass on and to change.
std::vector<Json> trees_of(const std::vector<SharedObject>& objects);

// The values under which an index finds an object; none: it is not in the index.
using IndexFunction = std::function<std::vector<std::string>(const JsonView&)>;

// Its namespace.
std::vector<std::string> index_by_namespace(const JsonView& object);
// The uid of the owner that controls it (metadata.ownerReferences with controller: true).
std::vector<std::string> index_by_owner(const JsonView& object);
// "namespace/value" of a label, or "value" for an object without namespace.
IndexFunction index_by_label(const std::string& label);

class ObjectStore {
 public:
  using Indexers = std::map<std::string, IndexFunction>;

  explicit ObjectStore(Indexers indexers = {});
  ObjectStore(const ObjectStore&) = delete;
  ObjectStore& operator=(const ObjectStore&) = delete;

  SharedObject find(const std::string& key) const;  // null: not there
  std::vector<SharedObject> snapshot() const;       // by key
  // By key. The index must be one of those of the constructor.
  std::vector<SharedObject> by_index(const std::string& index, const std::string& value) const;
  std::vector<std::string> keys() const;
  std::size_t size() const;

  // Both return the previous object, or null.
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

  mutable SharedMutex mutex_;
  Objects objects_ PLIMSOLL_GUARDED_BY(mutex_);
  std::map<std::string, Index> indexes_ PLIMSOLL_GUARDED_BY(mutex_);
};

}  // namespace plimsoll::kube
