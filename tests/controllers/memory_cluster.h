// A Client whose API server is a map in memory: enough of lists, watches, creates and updates to drive a
// controller at full speed, with failures on demand. What an API server checks beyond resourceVersions is for
// the fake and the real one. Thread-safe.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kube/client.h"

namespace plimsoll::testing {

class MemoryCluster : public kube::Client {
 public:
  // As somebody else's write: never fails, and is not counted.
  void put(const std::string& plural, Json object);
  void erase(const std::string& plural, const std::string& key);
  std::optional<Json> find(const std::string& plural, const std::string& key) const;
  std::vector<std::string> names(const std::string& plural) const;

  void fail_writes(int count);
  void fail_reads(int count);
  int writes() const;  // that were tried through the Client

  Result<Json> get(const kube::Resource& resource, const std::string& namespace_name, const std::string& name,
                   const kube::CallOptions& options) override;
  Result<Json> list(const kube::Resource& resource, const std::string& namespace_name,
                    const kube::ListOptions& what, const kube::CallOptions& options) override;
  Result<Json> create(const kube::Resource& resource, const std::string& namespace_name, const Json& object,
                      const kube::CallOptions& options) override;
  Result<Json> update(const kube::Resource& resource, const std::string& namespace_name, const Json& object,
                      const std::string& subresource, const kube::CallOptions& options) override;
  Result<Json> patch(const kube::Resource& resource, const std::string& namespace_name,
                     const std::string& name, kube::PatchType type, const Json& patch,
                     const std::string& subresource, const kube::CallOptions& options) override;
  Result<void> remove(const kube::Resource& resource, const std::string& namespace_name,
                      const std::string& name, const kube::CallOptions& options) override;
  Result<void> watch(const kube::Resource& resource, const std::string& namespace_name,
                     const kube::WatchOptions& options,
                     const std::function<void(const kube::WatchEvent&)>& on_event,
                     std::stop_token stop) override;
  Result<std::string> get_raw(const std::string& path, const kube::CallOptions& options) override;

 private:
  struct Entry {
    int version = 0;
    std::string plural;
    kube::WatchEventType type = kube::WatchEventType::kAdded;
    Json object;
  };

  void record(const std::string& plural, kube::WatchEventType type, Json& object);
  bool fails_write();

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<std::string, std::map<std::string, Json>> objects_;
  std::vector<Entry> history_;
  int version_ = 0;
  int failing_writes_ = 0;
  int failing_reads_ = 0;
  int writes_ = 0;
};

}  // namespace plimsoll::testing
