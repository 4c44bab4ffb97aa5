#include "kube/object_store.h"

#include <algorithm>
#include <cassert>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

namespace plimsoll::kube {
namespace {

std::string within_namespace(const JsonView& object, const std::string& name) {
  const std::string namespace_name = text_member(object, {"metadata", "namespace"});
  return namespace_name.empty() ? name : namespace_name + "/" + name;
}

}  // namespace

std::string key_of(const JsonView& object) {
  return within_namespace(object, text_member(object, {"metadata", "name"}));
}

std::string namespace_of(const std::string& key) {
  const std::size_t slash = key.find('/');
  return slash == std::string::npos ? std::string() : key.substr(0, slash);
}

std::vector<Json> trees_of(const std::vector<SharedObject>& objects) {
  std::vector<Json> trees;
  trees.reserve(objects.size());
  for (const SharedObject& object : objects) {
    trees.push_back(object.tree());
  }
  return trees;
}

std::vector<std::string> index_by_namespace(const JsonView& object) {
  return {text_member(object, {"metadata", "namespace"})};
}

std::vector<std::string> index_by_owner(const JsonView& object) {
  for (const JsonView owner : member(object, {"metadata", "ownerReferences"}).elements()) {
    if (member(owner, {"controller"}).boolean() == true) {
      return {text_member(owner, {"uid"})};
    }
  }
  return {};
}

IndexFunction index_by_label(const std::string& label) {
  return [label](const JsonView& object) -> std::vector<std::string> {
    const std::optional<std::string_view> value = member(object, {"metadata", "labels", label}).text();
    if (!value) {
      return {};
    }
    return {within_namespace(object, std::string(*value))};
  };
}

ObjectStore::ObjectStore(Indexers indexers) {
  for (auto& indexer : indexers) {
    indexes_[indexer.first].values_of = std::move(indexer.second);
  }
}

SharedObject ObjectStore::find(const std::string& key) const {
  const ReaderLock lock(mutex_);
  const auto found = objects_.find(key);
  return found == objects_.end() ? nullptr : found->second;
}

std::vector<SharedObject> ObjectStore::snapshot() const {
  const ReaderLock lock(mutex_);
  std::vector<SharedObject> all;
  all.reserve(objects_.size());
  for (const auto& [key, object] : objects_) {
    all.push_back(object);
  }
  return all;
}

std::vector<SharedObject> ObjectStore::by_index(const std::string& index, const std::string& value) const {
  const ReaderLock lock(mutex_);
  const auto known = indexes_.find(index);
  assert(known != indexes_.end());
  std::vector<SharedObject> matching;
  const auto found = known->second.entries.find(value);
  if (found != known->second.entries.end()) {
    matching.reserve(found->second.size());
    for (const Entry entry : found->second) {
      matching.push_back(entry->second);
    }
  }
  return matching;
}

std::vector<std::string> ObjectStore::keys() const {
  const ReaderLock lock(mutex_);
  std::vector<std::string> all;
  all.reserve(objects_.size());
  for (const auto& [key, object] : objects_) {
    all.push_back(key);
  }
  return all;
}

std::size_t ObjectStore::size() const {
  const ReaderLock lock(mutex_);
  return objects_.size();
}

void ObjectStore::add_to(Index& index, Entry entry) {
  for (const std::string& value : index.values_of(*entry->second)) {
    std::vector<Entry>& entries = index.entries[value];
    const auto place = std::ranges::lower_bound(entries, entry->first, {}, &Objects::value_type::first);
    if (place == entries.end() || *place != entry) {  // a function may return a value twice
      entries.insert(place, entry);
    }
  }
}

void ObjectStore::take_from(Index& index, Entry entry) {
  for (const std::string& value : index.values_of(*entry->second)) {
    const auto found = index.entries.find(value);
    if (found == index.entries.end()) {
      continue;
    }
    std::vector<Entry>& entries = found->second;
    std::erase(entries, entry);
    if (entries.empty()) {
      index.entries.erase(found);
    }
  }
}

SharedObject ObjectStore::set(const std::string& key, SharedObject object) {
  assert(object);
  const WriterLock lock(mutex_);
  const auto [place, is_new] = objects_.try_emplace(key);
  if (!is_new) {
    for (auto& [name, index] : indexes_) {
      take_from(index, &*place);
    }
  }
  SharedObject before = std::exchange(place->second, std::move(object));
  for (auto& [name, index] : indexes_) {
    add_to(index, &*place);
  }
  return before;
}

SharedObject ObjectStore::remove(const std::string& key) {
  const WriterLock lock(mutex_);
  const auto found = objects_.find(key);
  if (found == objects_.end()) {
    return nullptr;
  }
  for (auto& [name, index] : indexes_) {
    take_from(index, &*found);
  }
  SharedObject before = std::move(found->second);
  objects_.erase(found);
  return before;
}

}  // namespace plimsoll::kube
