#include "kube/reflector_group.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace plimsoll::kube {

ReflectorGroup::ReflectorGroup(Client& client, Reflector::Options options,
                               const std::vector<std::string>& namespaces) {
  if (options.on_change) {
    options.on_change = [this, handler = std::move(options.on_change)](const Reflector::Change& change) {
      const MutexLock lock(handling_);
      handler(change);
    };
  }
  if (options.project) {
    options.project = [this, project = std::move(options.project)](const JsonView& object) {
      const MutexLock lock(handling_);
      return project(object);
    };
  }
  const std::vector<std::string> all = {""};
  for (const std::string& name : namespaces.empty() ? all : namespaces) {
    options.namespace_name = name;
    members_.emplace(name, std::make_unique<Reflector>(client, options));
  }
}

void ReflectorGroup::start() {
  for (const auto& [name, member] : members_) {
    member->start();
  }
}

void ReflectorGroup::stop() {
  for (const auto& [name, member] : members_) {
    member->stop();
  }
}

bool ReflectorGroup::has_synced() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const auto& member) { return member.second->has_synced(); });
}

bool ReflectorGroup::wait_for_sync(const std::stop_token& stop) const {
  return std::all_of(members_.begin(), members_.end(),
                     [&](const auto& member) { return member.second->wait_for_sync(stop); });
}

SharedObject ReflectorGroup::find(const std::string& key) const {
  auto member = members_.find("");
  if (member == members_.end()) {
    member = members_.find(key.substr(0, key.find('/')));
  }
  return member == members_.end() ? SharedObject() : member->second->find(key);
}

std::vector<SharedObject> ReflectorGroup::snapshot() const {
  std::map<std::string, SharedObject> by_key;
  for (const auto& [name, member] : members_) {
    if (members_.size() == 1) {
      return member->snapshot();
    }
    for (SharedObject& object : member->snapshot()) {
      by_key.emplace(key_of(*object), std::move(object));
    }
  }
  std::vector<SharedObject> objects;
  objects.reserve(by_key.size());
  std::transform(by_key.begin(), by_key.end(), std::back_inserter(objects),
                 [](auto& entry) { return std::move(entry.second); });
  return objects;
}

std::vector<SharedObject> ReflectorGroup::by_index(const std::string& index, const std::string& value) const {
  std::vector<SharedObject> found;
  for (const auto& [name, member] : members_) {
    std::vector<SharedObject> here = member->by_index(index, value);
    std::move(here.begin(), here.end(), std::back_inserter(found));
  }
  return found;
}

std::size_t ReflectorGroup::size() const {
  return std::accumulate(members_.begin(), members_.end(), std::size_t{0},
                         [](std::size_t sum, const auto& member) { return sum + member.second->size(); });
}

}  // namespace plimsoll::kube
