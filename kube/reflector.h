// Reflector: a local copy of one collection of the API server, kept current by LIST and WATCH as client-go's
// reflector keeps it.
//
//   Reflector nodes(client, {.resource = kNodes, .project = keep_labels, .on_change = [&](auto&) { wake();
//   }}); nodes.start();
//   ...
//   for (const auto& node : nodes.snapshot()) ...
//   nodes.stop();
//
// It survives what an API server does to a watch: clean ends, cut or silent connections (bookmarks make the
// silence suspicious), 410 Gone at any point, history that went backwards, overload. In between the copy may
// be behind, and events may be merged; so look at the copy, and take `on_change` only as a reason to look.
//
// One thread a reflector. Objects are shared and immutable; `find` and `snapshot` may be called from any
// thread. `on_change` runs on the reflector's thread without a lock held; it must not block for long, nor
// call `stop`. `stop` waits for the thread, and the destructor calls it. The client must outlive it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "kube/backoff.h"
#include "kube/client.h"
#include "kube/sleeper.h"

namespace plimsoll::kube {

using SharedObject = std::shared_ptr<const Json>;

// "namespace/name", or "name" of what has no namespace.
std::string key_of(const Json& object);

class Reflector {
 public:
  struct Change {
    enum class Kind { kSet, kRemoved };
    Kind kind = Kind::kSet;
    std::string key;
    SharedObject object;  // as it is now; for kRemoved as it was last seen
  };

  struct Options {
    Resource resource;
    std::string namespace_name;  // empty: all
    std::string label_selector;
    std::string field_selector;
    // What to keep of an object, to save memory; it must keep metadata's name, namespace and resourceVersion.
    // A null result keeps nothing: the object counts as absent.
    std::function<Json(const Json&)> project;
    std::function<void(const Change&)> on_change;
    std::int64_t page_size = 500;  // of a list that bypasses the server's watch cache
    std::chrono::milliseconds list_timeout{60'000};
    std::chrono::milliseconds idle_timeout{120'000};  // bookmarks come about once a minute
    // Same figures as client-go: 0.8 s doubling to 30 s, jitter 1, forgotten after two good minutes.
    Backoff::Options backoff{std::chrono::milliseconds(800), std::chrono::milliseconds(30'000), 1.0};
    std::chrono::milliseconds healthy_after{120'000};
    std::uint64_t seed = std::random_device{}();
    const Clock* clock = &system_clock();
    Sleeper* sleeper = &system_sleeper();
  };

  Reflector(Client& client, Options options);
  ~Reflector();
  Reflector(const Reflector&) = delete;
  Reflector& operator=(const Reflector&) = delete;

  void start();
  void stop();

  // True once the first list is in the copy.
  bool has_synced() const;
  SharedObject find(const std::string& key) const;
  std::vector<SharedObject> snapshot() const;  // by key
  std::size_t size() const;

 private:
  void run(const std::stop_token& stop);
  Result<void> list_and_watch(const std::stop_token& stop);
  Result<void> list(const std::stop_token& stop);
  Result<void> watch(const std::stop_token& stop);
  void replace(const Json& list);
  void apply(const WatchEvent& event);
  void set(const std::string& key, const Json& object);
  void remove(const std::string& key);
  void notify(Change::Kind kind, const std::string& key, SharedObject object);
  bool pause(const std::stop_token& stop);

  Client& client_;
  const Options options_;

  mutable std::shared_mutex mutex_;
  std::map<std::string, SharedObject> objects_;
  bool synced_ = false;

  // Below: the reflector's thread only.
  Backoff backoff_;
  std::mt19937_64 random_;
  std::optional<Clock::SteadyTime> last_pause_;
  std::string resource_version_ = "0";   // of the next list or watch; "0": whatever the server has in memory
  bool version_is_unavailable_ = false;  // the server no longer, or not yet, knows it
  std::size_t events_ = 0;               // of the current watch

  std::jthread thread_;
};

}  // namespace plimsoll::kube
