// Reflector: a local copy of one collection of the API server, kept current by LIST and WATCH as client-go's
// reflector keeps it.
//
//   Reflector pods(client, {.resource = kPods,
//                           .keep = JsonSelection().without({"metadata"}, {"managedFields"}),
//                           .indexers = {{"owner", index_by_owner}}});
//   pods.add_handler([&](const Reflector::Change& change) { queue.add(job_of(*change.object)); });
//   pods.start();
//   if (!pods.wait_for_sync(stop)) return;
//   for (const SharedObject& pod : pods.by_index("owner", uid)) ...
//   pods.stop();
//
// Where the server supports it, the list arrives as the first events of a watch (KEP 3157, as in client-go
// since 1.35): neither side then has the whole list in memory beside the copy. Otherwise it is a LIST, which
// is read item by item. In both cases the copy changes only when the list is complete.
//
// Controllers that need the same collection share one reflector: each adds its handler before the start.
//
// It handles all that an API server does to a watch: clean ends, cut or silent connections (silence is
// detected, since bookmarks come regularly), 410 Gone at any point, history that went backwards, overload.
// Meanwhile the copy may be behind, and events may be merged: so read the copy, and treat a change only as a
// reason to read it. The changes of one key are consistent all the same: an object is set before it is
// removed, `before` is the object of the last change, and an object that was deleted and recreated in between
// (another uid) is removed first. From time to time a resync passes every object to the handlers again,
// unchanged, in case a handler lost a change.
//
// Each reflector has one thread. Objects are shared, immutable and packed; any thread may read the copy.
// Handlers run on the reflector's thread, in the order they were added, without a lock held; they must not
// block for long, nor call `stop`. `stop` waits for the thread, and the destructor calls it. The client, and
// whatever handlers use, must outlive it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/json/json.h"
#include "base/json/selection.h"
#include "base/json/view.h"
#include "base/mutex.h"
#include "kube/client.h"
#include "kube/object_store.h"
#include "kube/sleeper.h"

namespace plimsoll::kube {

// client-go's metrics of a reflector, whose names follow each; the default ignores them. Called on the
// reflector's thread: implementations must be quick.
class ReflectorObserver {
 public:
  virtual ~ReflectorObserver() = default;
  virtual void list_began() {}  // reflector_lists_total
  // reflector_list_duration_seconds, reflector_items_per_list
  virtual void listed(std::chrono::nanoseconds /*time*/, std::size_t /*items*/) {}
  virtual void watch_began() {}  // reflector_watches_total
  // reflector_watch_duration_seconds, reflector_items_per_watch
  virtual void watched(std::chrono::nanoseconds /*time*/, std::size_t /*events*/) {}
  virtual void watch_was_short() {}                        // reflector_short_watches_total
  virtual void version(const std::string& /*version*/) {}  // reflector_last_resource_version
};

class Reflector {
 public:
  struct Change {
    enum class Kind { kSet, kRemoved };
    Kind kind = Kind::kSet;
    std::string key;
    SharedObject object;  // as it is now; for kRemoved as it was when it was deleted
    SharedObject before;  // of the last change; null: a new object; equal to `object`: a resync
    // Of kRemoved: the deletion event was missed, and `object` is as it was last seen (a tombstone).
    bool is_final_state_unknown = false;
  };
  using Handler = std::function<void(const Change&)>;

  struct Options {
    Resource resource;
    std::string namespace_name = {};  // empty: all
    std::string label_selector = {};
    std::string field_selector = {};
    // What to keep of an object, to save memory; it must keep metadata's name, namespace, uid and
    // resourceVersion.
    JsonSelection keep = {};
    // Replaces `keep` where names of members are not enough. A null result keeps nothing: the object counts
    // as deleted.
    std::function<Json(const JsonView&)> project = {};
    ObjectStore::Indexers indexers = {};  // of what was kept
    Handler on_change = {};               // the first handler
    // Time between resyncs (plus or minus a tenth), as controller-runtime's SyncPeriod. Zero: never. They
    // happen between events or watches, so up to ten minutes late.
    std::chrono::milliseconds resync = std::chrono::hours(10);
    bool stream_lists = true;
    std::int64_t page_size = 500;  // of a LIST that is not answered from the server's watch cache
    std::chrono::milliseconds list_timeout{60'000};
    std::chrono::seconds min_watch_time{300};         // the server ends a watch after this to twice this
    std::chrono::milliseconds idle_timeout{120'000};  // bookmarks come about once a minute
    // As in client-go: 0.8 s, doubling to 30 s, jitter 1, reset after two minutes without a failure.
    Backoff::Options backoff{std::chrono::milliseconds(800), std::chrono::milliseconds(30'000), 1.0};
    std::chrono::milliseconds healthy_after{120'000};
    ReflectorObserver* observer = nullptr;  // must outlive the reflector; null: none
    std::uint64_t seed = std::random_device{}();
    const Clock* clock = &system_clock();
    Sleeper* sleeper = &system_sleeper();
  };

  Reflector(Client& client, Options options);
  ~Reflector();
  Reflector(const Reflector&) = delete;
  Reflector& operator=(const Reflector&) = delete;

  // Only before the start.
  void add_handler(Handler handler);
  void start();
  void stop();

  // True once the first list is in the copy and the handlers have seen all of it.
  bool has_synced() const;
  // Waits for that. False: a stop was requested first.
  bool wait_for_sync(const std::stop_token& stop) const;

  SharedObject find(const std::string& key) const { return store_.find(key); }
  std::vector<SharedObject> snapshot() const { return store_.snapshot(); }  // by key
  std::vector<SharedObject> by_index(const std::string& index, const std::string& value) const {
    return store_.by_index(index, value);
  }
  std::size_t size() const { return store_.size(); }

 private:
  // A list that is being received, by key, so that handlers are called in the order of keys.
  using Items = std::map<std::string, SharedObject>;

  void run(const std::stop_token& stop);
  Result<void> list_and_watch(const std::stop_token& stop);
  Result<void> list(const std::stop_token& stop);
  Result<void> request_list(const std::stop_token& stop);
  Result<void> watch(const std::stop_token& stop);
  Result<void> check_end_of_watch(const Result<void>& ended, const std::stop_token& stop);
  void replace(const Items& items, const std::string& version, Clock::SteadyTime began);
  void apply(const WatchEvent& event);
  void apply_initial(const WatchEvent& event);
  SharedObject keep(const std::string& key, const JsonView& object) const;
  void set(const std::string& key, SharedObject object);
  void remove(const std::string& key, SharedObject last, bool is_final_state_unknown);
  void notify(const Change& change) const;
  void set_version(const std::string& version);
  void resync_when_due();
  void plan_resync();
  bool pause(const std::stop_token& stop);

  Client& client_;
  const Options options_;
  ReflectorObserver ignore_;
  ReflectorObserver& observer_;
  std::vector<Handler> handlers_;  // unchanged after the start
  ObjectStore store_;              // only the reflector's thread writes

  mutable Mutex mutex_;
  mutable std::condition_variable_any changed_;
  bool synced_ PLIMSOLL_GUARDED_BY(mutex_) = false;

  // Below: the reflector's thread only.
  Backoff backoff_;
  std::mt19937_64 random_;
  std::optional<Clock::SteadyTime> last_pause_;
  std::string resource_version_ = "0";   // of the next list or watch; "0": any that the server has in memory
  bool version_is_unavailable_ = false;  // the server has it no longer, or not yet
  bool can_stream_;                      // lists arrive by a watch
  std::optional<Items> initial_;         // of a list that arrives by a watch
  std::stop_source watch_end_;           // of the current watch
  Clock::SteadyTime watch_began_{};
  std::size_t events_ = 0;  // of the current watch
  Clock::SteadyTime last_success_{};
  Clock::SteadyTime resync_due_{};

  std::jthread thread_;
};

}  // namespace plimsoll::kube
