// Client: the Kubernetes API as calls that return values. One implementation talks HTTP (kube/http_client.h,
// on cpprestsdk); tests decorate it to inject faults.
//
//   Result<Json> job = client.get(kTrainingJobs, "default", "ads");
//
// Thread-safety: every method may be called from any thread at once. Calls block their own thread, at most
// until `CallOptions::timeout` or its stop token fires; `watch` blocks until its stream ends or the stop
// token fires. Errors carry the API's reason as ErrorCode, its message, and Retry-After.
#pragma once

#include <chrono>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/json/json.h"
#include "base/json/view.h"
#include "base/result.h"
#include "kube/resource.h"

namespace plimsoll::kube {

// What becomes of what a removed object owns.
enum class Propagation {
  kBackground,  // it goes afterwards
  kForeground,  // it goes first
  kOrphan,      // it stays; what the API does by default with the pods of a batch/v1 Job
};

struct CallOptions {
  std::chrono::milliseconds timeout{10'000};  // whole call, retries included
  std::string field_manager = "plimsoll";
  bool dry_run = false;
  std::stop_token stop = {};  // ends the call early, with kCancelled
  // Of remove alone, as preconditions: another object of the same name, or the object in another state than
  // the one that was read, is left alone (kConflict).
  std::string uid = {};
  std::string resource_version = {};
  Propagation propagation = Propagation::kBackground;
};

struct ListOptions {
  std::string label_selector;
  std::string field_selector;
  std::string resource_version;  // "" most recent, "0" any the server has in memory
  std::int64_t limit = 0;        // page size; the client follows `continue` and returns all items
};

enum class PatchType { kJson, kMerge, kStrategicMerge, kApply };

enum class WatchEventType { kAdded, kModified, kDeleted, kBookmark };

struct WatchEvent {
  WatchEventType type = WatchEventType::kAdded;
  JsonView object;  // lives as long as the call that tells of it
};

struct WatchOptions {
  std::string label_selector;
  std::string field_selector;
  std::string resource_version;  // events after this one
  // Begin with what there is, as ADDED events, up to a bookmark that has the annotation kInitialEventsEnd
  // (KEP 3157). Then `resource_version` is the least that the server must know; "" is the most recent.
  // Servers that cannot do it answer kInvalid; those before 1.27 ignore it, and send no such bookmark.
  bool send_initial_events = false;
  std::chrono::seconds server_timeout{300};  // asked of the server
  std::chrono::milliseconds idle_timeout{
      120'000};  // no byte for so long: the connection is dead (half-open TCP)
};

inline constexpr std::string_view kInitialEventsEnd = "k8s.io/initial-events-end";

// Takes a list item by item. An item lives as long as the call that brings it.
struct ItemReader {
  std::function<void()> begin;  // forget what came before: the list begins, perhaps anew
  std::function<void(const JsonView&)> take;
};

class Client {
 public:
  virtual ~Client() = default;

  virtual Result<Json> get(const Resource& resource, const std::string& namespace_name,
                           const std::string& name, const CallOptions& options = {}) = 0;
  // The List object: metadata.resourceVersion and all items.
  virtual Result<Json> list(const Resource& resource, const std::string& namespace_name,
                            const ListOptions& what = {}, const CallOptions& options = {}) = 0;
  // The same, with no items in what it returns: for collections that are too large for a tree of them all.
  // After an error not all of them have come.
  virtual Result<Json> list_each(const Resource& resource, const std::string& namespace_name,
                                 const ListOptions& what, const ItemReader& reader,
                                 const CallOptions& options = {});
  virtual Result<Json> create(const Resource& resource, const std::string& namespace_name, const Json& object,
                              const CallOptions& options = {}) = 0;
  // PUT; with metadata.resourceVersion the write is conditional (kConflict).
  virtual Result<Json> update(const Resource& resource, const std::string& namespace_name, const Json& object,
                              const std::string& subresource = {}, const CallOptions& options = {}) = 0;
  virtual Result<Json> patch(const Resource& resource, const std::string& namespace_name,
                             const std::string& name, PatchType type, const Json& patch,
                             const std::string& subresource = {}, const CallOptions& options = {}) = 0;
  virtual Result<void> remove(const Resource& resource, const std::string& namespace_name,
                              const std::string& name, const CallOptions& options = {}) = 0;
  // Calls `on_event` for each event, in order, on the calling thread. Ends ok when the server closed the
  // stream cleanly; kExpired on 410, also one that arrives as an ERROR event; kCancelled when stopped.
  virtual Result<void> watch(const Resource& resource, const std::string& namespace_name,
                             const WatchOptions& options,
                             const std::function<void(const WatchEvent&)>& on_event,
                             std::stop_token stop) = 0;
  // A raw GET below the server's root ("/readyz", "/version").
  virtual Result<std::string> get_raw(const std::string& path, const CallOptions& options = {}) = 0;
};

}  // namespace plimsoll::kube
