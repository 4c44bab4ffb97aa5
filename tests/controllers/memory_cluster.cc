#include "tests/controllers/memory_cluster.h"

#include "kube/reflector.h"

namespace plimsoll::testing {

using kube::WatchEvent;
using kube::WatchEventType;

namespace {

Error unsupported() {
  return Error(ErrorCode::kUnsupported, "the memory cluster has no such call");
}

}  // namespace

void MemoryCluster::record(const std::string& plural, WatchEventType type, Json& object) {
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  history_.push_back({version_, plural, type, object});
  changed_.notify_all();
}

void MemoryCluster::put(const std::string& plural, Json object) {
  const std::lock_guard lock(mutex_);
  const std::string key = kube::key_of(object);
  const bool is_new = objects_[plural].count(key) == 0;
  record(plural, is_new ? WatchEventType::kAdded : WatchEventType::kModified, object);
  objects_[plural][key] = std::move(object);
}

void MemoryCluster::erase(const std::string& plural, const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = objects_[plural].find(key);
  if (found != objects_[plural].end()) {
    record(plural, WatchEventType::kDeleted, found->second);
    objects_[plural].erase(found);
  }
}

std::optional<Json> MemoryCluster::find(const std::string& plural, const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto collection = objects_.find(plural);
  if (collection == objects_.end() || collection->second.count(key) == 0) {
    return std::nullopt;
  }
  return collection->second.at(key);
}

std::vector<std::string> MemoryCluster::names(const std::string& plural) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> keys;
  const auto collection = objects_.find(plural);
  if (collection != objects_.end()) {
    for (const auto& [key, object] : collection->second) {
      keys.push_back(key);
    }
  }
  return keys;
}

void MemoryCluster::fail_writes(int count) {
  const std::lock_guard lock(mutex_);
  failing_writes_ = count;
}

void MemoryCluster::fail_reads(int count) {
  const std::lock_guard lock(mutex_);
  failing_reads_ = count;
}

int MemoryCluster::writes() const {
  const std::lock_guard lock(mutex_);
  return writes_;
}

bool MemoryCluster::fails_write() {
  ++writes_;
  if (failing_writes_ == 0) {
    return false;
  }
  --failing_writes_;
  return true;
}

Result<Json> MemoryCluster::list(const kube::Resource& resource, const std::string&, const kube::ListOptions&,
                                 const kube::CallOptions&) {
  const std::lock_guard lock(mutex_);
  if (failing_reads_ > 0) {
    --failing_reads_;
    return Error(ErrorCode::kUnavailable, "told to fail");
  }
  Json list;
  list["metadata"]["resourceVersion"] = std::to_string(version_);
  list["items"] = Json(::Json::arrayValue);
  for (const auto& [key, object] : objects_[resource.plural]) {
    list["items"].append(object);
  }
  return list;
}

Result<void> MemoryCluster::watch(const kube::Resource& resource, const std::string&,
                                  const kube::WatchOptions& options,
                                  const std::function<void(const WatchEvent&)>& on_event,
                                  std::stop_token stop) {
  if (options.send_initial_events) {
    return Error(ErrorCode::kInvalid, "sendInitialEvents is forbidden");
  }
  int seen = std::stoi(options.resource_version);
  std::size_t next = 0;
  while (true) {
    std::vector<Entry> events;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, stop, [&] { return next < history_.size(); });
      if (stop.stop_requested()) {
        return Error(ErrorCode::kCancelled, "stopped");
      }
      for (; next < history_.size(); ++next) {
        const Entry& entry = history_[next];
        if (entry.version > seen && entry.plural == resource.plural) {
          events.push_back(entry);
        }
      }
      seen = version_;
    }
    for (const Entry& entry : events) {
      on_event({entry.type, entry.object});
    }
  }
}

Result<Json> MemoryCluster::create(const kube::Resource& resource, const std::string&, const Json& object,
                                   const kube::CallOptions&) {
  const std::lock_guard lock(mutex_);
  if (fails_write()) {
    return Error(ErrorCode::kUnavailable, "told to fail");
  }
  const std::string key = kube::key_of(object);
  if (objects_[resource.plural].count(key) != 0) {
    return Error(ErrorCode::kAlreadyExists, key + " exists");
  }
  Json made = object;
  made.removeMember("status");  // as with a status subresource
  record(resource.plural, WatchEventType::kAdded, made);
  objects_[resource.plural][key] = made;
  return made;
}

Result<Json> MemoryCluster::update(const kube::Resource& resource, const std::string&, const Json& object,
                                   const std::string& subresource, const kube::CallOptions&) {
  const std::lock_guard lock(mutex_);
  if (fails_write()) {
    return Error(ErrorCode::kUnavailable, "told to fail");
  }
  const auto found = objects_[resource.plural].find(kube::key_of(object));
  if (found == objects_[resource.plural].end()) {
    return Error(ErrorCode::kNotFound, "no such object");
  }
  if (found->second["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"]) {
    return Error(ErrorCode::kConflict, "the object has been modified");
  }
  Json updated = found->second;
  if (subresource == "status") {
    updated["status"] = object["status"];
  } else {
    updated = object;
    updated["status"] = found->second["status"];
  }
  record(resource.plural, WatchEventType::kModified, updated);
  found->second = updated;
  return updated;
}

Result<Json> MemoryCluster::get(const kube::Resource& resource, const std::string& namespace_name,
                                const std::string& name, const kube::CallOptions&) {
  const std::string key = namespace_name.empty() ? name : namespace_name + "/" + name;
  std::optional<Json> found = find(resource.plural, key);
  return found ? Result<Json>(*std::move(found)) : Error(ErrorCode::kNotFound, key + " is not there");
}

Result<Json> MemoryCluster::patch(const kube::Resource&, const std::string&, const std::string&,
                                  kube::PatchType, const Json&, const std::string&,
                                  const kube::CallOptions&) {
  return unsupported();
}

Result<void> MemoryCluster::remove(const kube::Resource&, const std::string&, const std::string&,
                                   const kube::CallOptions&) {
  return unsupported();
}

Result<std::string> MemoryCluster::get_raw(const std::string&, const kube::CallOptions&) {
  return unsupported();
}

}  // namespace plimsoll::testing
