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

// What happens to the dependents of a deleted object.
enum class Propagation {
  kBackground,  // deleted after it
  kForeground,  // deleted before it
  kOrphan,      // kept; the API's default for the pods of a batch/v1 Job
};

struct CallOptions {
  std::chrono::milliseconds timeout{10'000};  // of the whole call, retries included
  std::string field_manager = "plimsoll";
  bool dry_run = false;
  std::stop_token stop = {};  // ends the call early, with kCancelled
  // Preconditions of remove, ignored by all other calls: an object with another uid or resourceVersion is not
  // deleted (kConflict).
  std::string uid = {};
  std::string resource_version = {};
  Propagation propagation = Propagation::kBackground;
};

struct ListOptions {
  std::string label_selector;
  std::string field_selector;
  std::string resource_version;  // "": the most recent, "0": any that the server has in memory
  std::int64_t limit = 0;        // page size; the client follows `continue` and returns all items
};

enum class PatchType { kJson, kMerge, kStrategicMerge, kApply };

enum class WatchEventType { kAdded, kModified, kDeleted, kBookmark };

struct WatchEvent {
  WatchEventType type = WatchEventType::kAdded;
  JsonView object;  // valid during the call of `on_event`
};

struct WatchOptions {
  std::string label_selector;
  std::string field_selector;
  std::string resource_version;  // events after this one
  // Begin with the present objects, as ADDED events, up to a bookmark with the annotation kInitialEventsEnd
  // (KEP 3157). `resource_version` is then the minimum; "" is the most recent. Servers without this feature
  // answer kInvalid; those before 1.27 ignore the option, and send no such bookmark.
  bool send_initial_events = false;
  std::chrono::seconds server_timeout{300};  // after which the server ends the watch
  // Without a byte for this long the connection counts as dead (half-open TCP).
  std::chrono::milliseconds idle_timeout{120'000};
};

inline constexpr std::string_view kInitialEventsEnd = "k8s.io/initial-events-end";

// Receives a list item by item. An item is valid during its call of `take`.
struct ItemReader {
  std::function<void()> begin;  // the list begins, perhaps again: discard earlier items
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
  // The same for collections that are too large for one tree: the items go to `reader`, and the returned List
  // has none. After an error the reader has not seen all items.
  virtual Result<Json> list_each(const Resource& resource, const std::string& namespace_name,
                                 const ListOptions& what, const ItemReader& reader,
                                 const CallOptions& options = {});
  virtual Result<Json> create(const Resource& resource, const std::string& namespace_name, const Json& object,
                              const CallOptions& options = {}) = 0;
  // PUT; metadata.resourceVersion makes the write conditional (kConflict).
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
