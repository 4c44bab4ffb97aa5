// The reflector against a server that is a model: a history of versions, changed behind its back, that fails
// in every way an API server does, on a virtual clock. When the faults end, the copy must equal the truth,
// and what handlers were told about each key must have been consistent all along.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "kube/reflector.h"
#include "tests/kube/partial_client.h"
#include "tests/kube/simulation.h"
#include "tests/kube/virtual_clock.h"
#include "tests/testing/patience.h"

namespace plimsoll::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kFaultyCalls = 16;  // of each seed
constexpr int kNames = 6;

// Whether and how the server sends lists as watches.
enum class Streams { kAsAsked, kRefused, kIgnored };

// All of it is called by the reflector's thread, but for wait_until_idle.
class SimulatedServer final : public testing::PartialClient, public Sleeper {
 public:
  explicit SimulatedServer(unsigned seed)
      : dice_(seed), streams_(static_cast<Streams>(roll(3))), uids_(roll(2) == 0 ? 2 : 1'000'000) {}

  Result<Json> list(const Resource&, const std::string&, const ListOptions& what,
                    const CallOptions&) override {
    begin_call();
    pass_at_most(seconds(5));
    if (std::optional<Error> refusal = refuse()) {
      return *refusal;
    }
    const int wanted = what.resource_version.empty() ? version_ : std::stoi(what.resource_version);
    if (wanted > version_) {
      return too_large(wanted);
    }
    if (wanted > 0 && !what.resource_version.empty() && fault(5)) {
      return Error(ErrorCode::kExpired, "The provided resource version is too old");
    }
    // "0" and "not older than" may be answered by a replica that lags behind.
    const bool lags = is_faulty() && !is_restored_ && !what.resource_version.empty();
    const int served = version_ - (lags ? roll(version_ - wanted + 1) : 0);
    Json list;
    list["metadata"]["resourceVersion"] = std::to_string(served);
    list["items"] = Json(::Json::arrayValue);
    for (const auto& [name, object] : state_at(served)) {
      list["items"].append(object.tree());
    }
    delivered_whole(served, what.resource_version.empty());
    return list;
  }

  Result<void> watch(const Resource&, const std::string&, const WatchOptions& options,
                     const std::function<void(const WatchEvent&)>& on_event, std::stop_token stop) override {
    begin_call();
    if (std::optional<Error> refusal = refuse()) {
      return *refusal;
    }
    if (fault(10)) {
      return {};  // at once
    }
    emit_ = &on_event;
    stop_ = stop;
    const std::string& requested = options.resource_version;
    cursor_ = requested.empty() ? version_ : std::stoi(requested);
    if (cursor_ > version_) {
      return too_large(cursor_);
    }
    if (options.send_initial_events) {
      if (streams_ == Streams::kRefused) {
        return Error(ErrorCode::kInvalid, "sendInitialEvents is forbidden for watch");
      }
      if (std::optional<Error> cut = stream_list(requested.empty())) {
        return *cut;
      }
    } else if (cursor_ < compacted_) {
      return Error(ErrorCode::kExpired, "too old resource version");
    }
    return follow();
  }

  bool sleep_for(milliseconds duration, const std::stop_token& stop) override {
    longest_sleep_ = std::max(longest_sleep_, duration);
    clock_.pass(duration);
    return !stop.stop_requested();
  }

  // Until the reflector has all there is and no fault will come any more. False: not within a minute.
  bool wait_until_idle() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, testing::kPatience, [this] { return is_idle_; });
  }

  using State = std::map<std::string, SharedObject>;
  const State& truth() const { return objects_; }
  const Clock& clock() const { return clock_; }
  int restores() const { return restores_; }
  int calls() const { return calls_; }
  milliseconds longest_sleep() const { return longest_sleep_; }

 private:
  struct Entry {
    int version = 0;
    std::string name;
    WatchEventType type = WatchEventType::kAdded;
    SharedObject object;
  };

  int roll(int sides) { return dice_.roll(sides); }
  bool is_faulty() const { return calls_ <= kFaultyCalls; }
  bool fault(int one_in) { return is_faulty() && roll(one_in) == 0; }
  void pass_at_most(milliseconds time) { clock_.pass(milliseconds(roll(static_cast<int>(time.count())))); }

  void begin_call() {
    ++calls_;
    change(roll(5));
    if (fault(20)) {
      go_back();
    }
    if (fault(6)) {
      compacted_ = version_ - roll(3);
    }
  }

  std::optional<Error> refuse() {
    if (!fault(4)) {
      return std::nullopt;
    }
    pass_at_most(seconds(30));
    switch (roll(5)) {
      case 0: return Error(ErrorCode::kTooManyRequests, "429");
      case 1: return Error(ErrorCode::kUnavailable, "500");
      case 2: return Error(ErrorCode::kTimeout, "silence");
      case 3: return Error(ErrorCode::kForbidden, "403");
      default: return Error(ErrorCode::kUnavailable, "connection refused");
    }
  }

  Error too_large(int wanted) const {
    return Error(ErrorCode::kTimeout, "Too large resource version: " + std::to_string(wanted) +
                                          ", current: " + std::to_string(version_));
  }

  // Objects come and go; a name may come back as another object.
  void change(int times) {
    for (int i = 0; i < times && is_faulty(); ++i) {
      // Nobody can tell that versions went back once they have caught up with what the client holds.
      if (is_restored_ && version_ + 1 >= delivered_) {
        return;
      }
      const std::string name(1, static_cast<char>('a' + roll(kNames)));
      const auto found = objects_.find(name);
      Json object;
      object["metadata"]["name"] = name;
      object["metadata"]["resourceVersion"] = std::to_string(++version_);
      if (found == objects_.end()) {
        object["metadata"]["uid"] = std::to_string(roll(uids_));
      } else {
        object["metadata"]["uid"] = text_member(*found->second, {"metadata", "uid"});
      }
      object["metadata"]["labels"]["l"] = std::string(1, "xyz"[roll(3)]);
      object["content"] = roll(1'000'000);
      WatchEventType type = WatchEventType::kModified;
      if (found == objects_.end()) {
        type = WatchEventType::kAdded;
      } else if (roll(3) == 0) {
        type = WatchEventType::kDeleted;
      }
      log_.push_back({version_, name, type, SharedObject(object)});
      apply(log_.back(), objects_);
    }
  }

  // etcd was restored from a backup: the same versions will come again, with other objects.
  void go_back() {
    const int to = std::max(0, version_ - roll(8));
    objects_ = state_at(to);
    std::erase_if(log_, [&](const Entry& entry) { return entry.version > to; });
    version_ = to;
    compacted_ = std::min(compacted_, version_);
    ++restores_;
    is_restored_ = delivered_ > version_;
  }

  State state_at(int version) const {
    State state;
    for (const Entry& entry : log_) {
      if (entry.version > version) {
        break;
      }
      apply(entry, state);
    }
    return state;
  }

  static void apply(const Entry& entry, State& state) {
    if (entry.type == WatchEventType::kDeleted) {
      state.erase(entry.name);
    } else {
      state[entry.name] = entry.object;
    }
  }

  void delivered_whole(int version, bool from_the_source) {
    delivered_ = from_the_source ? version : std::max(delivered_, version);
    is_restored_ = is_restored_ && !from_the_source;
  }

  bool emit(WatchEventType type, const JsonView& object) {
    (*emit_)({type, object});
    return !stop_.stop_requested();
  }

  bool emit_bookmark(bool end_of_initial_events) {
    Json bookmark;
    bookmark["metadata"]["resourceVersion"] = std::to_string(cursor_);
    if (end_of_initial_events) {
      bookmark["metadata"]["annotations"][std::string(kInitialEventsEnd)] = "true";
    }
    return emit(WatchEventType::kBookmark, bookmark);
  }

  static Error cut() { return Error(ErrorCode::kUnavailable, "cut"); }
  static Error stopped() { return Error(ErrorCode::kCancelled, "stopped"); }

  // What there is, as events; then those that happened meanwhile; then the bookmark.
  std::optional<Error> stream_list(bool from_the_source) {
    std::vector<SharedObject> initial;
    for (const auto& [name, object] : state_at(cursor_)) {
      initial.push_back(object);
    }
    std::shuffle(initial.begin(), initial.end(), dice_.generator());
    for (const SharedObject& object : initial) {
      if (fault(20)) {
        return cut();
      }
      if (!emit(WatchEventType::kAdded, *object)) {
        return stopped();
      }
    }
    if (streams_ == Streams::kIgnored) {
      return emit_bookmark(false) ? std::nullopt : std::optional(stopped());
    }
    change(roll(3));
    if (const Result<void> sent = send_news(false); !sent) {
      return sent.error();
    }
    delivered_whole(cursor_, from_the_source);
    return emit_bookmark(true) ? std::nullopt : std::optional(stopped());
  }

  // Events after the cursor: some of them twice, and where there are several of a name, perhaps only the
  // last.
  Result<void> send_news(bool counts_as_delivered) {
    const bool coalesces = fault(3);
    for (auto entry = log_.begin(); entry != log_.end(); ++entry) {
      const auto is_later = [&](const Entry& later) { return later.name == entry->name; };
      if (entry->version <= cursor_ || (coalesces && std::any_of(entry + 1, log_.end(), is_later))) {
        continue;
      }
      if (fault(15)) {
        return cut();
      }
      cursor_ = entry->version;
      if (counts_as_delivered) {
        delivered_ = std::max(delivered_, cursor_);
      }
      for (int times = fault(8) ? 2 : 1; times > 0; --times) {
        if (!emit(entry->type, *entry->object)) {
          return stopped();
        }
      }
    }
    cursor_ = version_;
    return {};
  }

  Result<void> follow() {
    for (int round = roll(4); round >= 0; --round) {
      change(roll(4));
      pass_at_most(seconds(100));
      if (const Result<void> sent = send_news(true); !sent) {
        return sent;
      }
      if (roll(3) == 0 && !emit_bookmark(false)) {
        return stopped();
      }
      delivered_ = std::max(delivered_, cursor_);
      if (fault(10)) {
        return Error(ErrorCode::kExpired, "an ERROR event");
      }
      if (fault(10)) {
        return cut();
      }
    }
    if (is_faulty()) {
      clock_.pass(seconds(1));
      return {};
    }
    std::unique_lock lock(mutex_);
    is_idle_ = true;
    changed_.notify_all();
    changed_.wait(lock, stop_, [] { return false; });
    return stopped();
  }

  testing::Dice dice_;
  const Streams streams_;
  const int uids_;  // few: the same uid comes back, as with a restored backup
  testing::VirtualClock clock_;
  State objects_;
  std::vector<Entry> log_;  // all of it: what was compacted is only refused
  int version_ = 1;
  int compacted_ = 0;         // watches from before this one have expired
  int delivered_ = 0;         // the highest version that the client holds
  bool is_restored_ = false;  // and the client does not know yet
  int restores_ = 0;
  int calls_ = 0;
  milliseconds longest_sleep_{0};

  // Of the current watch.
  const std::function<void(const WatchEvent&)>* emit_ = nullptr;
  std::stop_token stop_;
  int cursor_ = 0;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool is_idle_ = false;
};

int version_of(const JsonView& object) {
  return std::stoi(text_member(object, {"metadata", "resourceVersion"}));
}

// What handlers were told, and what was wrong with it.
class Listener {
 public:
  explicit Listener(const SimulatedServer& server) : server_(server) {}

  void hear(const Reflector::Change& change) {
    Reported& reported = reported_[change.key];
    expect(change.before == reported.object, "`before` is not what was reported last", change);
    expect(change.object != nullptr && key_of(*change.object) == change.key, "another object's key", change);
    if (change.kind == Reflector::Change::Kind::kRemoved) {
      expect(reported.object != nullptr, "removed what was not there", change);
      expect(!change.is_final_state_unknown || change.object == change.before, "an invented end", change);
      reported.object = nullptr;
      return;
    }
    if (reported.object && change.object != reported.object) {
      expect(text_member(*reported.object, {"metadata", "uid"}) ==
                 text_member(*change.object, {"metadata", "uid"}),
             "turned into another object", change);
      expect(reported.restores != server_.restores() ||
                 version_of(*reported.object) <= version_of(*change.object),
             "went back in time", change);
    }
    reported = {change.object, server_.restores()};
  }

  SimulatedServer::State state() const {
    SimulatedServer::State state;
    for (const auto& [key, reported] : reported_) {
      if (reported.object) {
        state[key] = reported.object;
      }
    }
    return state;
  }
  const std::string& problem() const { return problem_; }

 private:
  struct Reported {
    SharedObject object;
    int restores = 0;
  };

  void expect(bool holds, const char* what, const Reflector::Change& change) {
    if (!holds && problem_.empty()) {
      problem_ = std::string(what) + ": " + change.key + " before " +
                 (change.before ? write_json(change.before.tree()) : "nothing") + ", now " +
                 (change.object ? write_json(change.object.tree()) : "nothing");
    }
  }

  const SimulatedServer& server_;
  std::map<std::string, Reported> reported_;
  std::string problem_;
};

std::string text_of(const SimulatedServer::State& state) {
  std::string text;
  for (const auto& [key, object] : state) {
    text += write_json(object.tree()) + "\n";
  }
  return text;
}

bool is_wanted(const JsonView& object) {
  return text_member(object, {"metadata", "labels", "l"}) != "z";
}

void run(unsigned seed) {
  SimulatedServer server(seed);
  Listener first(server);
  Listener second(server);
  const bool projects = seed % 2 == 0;
  Reflector::Options options;
  options.clock = &server.clock();
  options.sleeper = &server;
  options.seed = seed;
  options.stream_lists = seed % 5 != 0;
  options.resync = std::chrono::minutes(30);
  options.indexers = {{"label", index_by_label("l")}};
  if (projects) {
    options.project = [](const JsonView& object) { return is_wanted(object) ? tree_of(object) : Json(); };
  }
  options.on_change = [&](const Reflector::Change& change) { first.hear(change); };
  Reflector reflector(server, options);
  reflector.add_handler([&](const Reflector::Change& change) { second.hear(change); });
  reflector.start();
  ASSERT_TRUE(server.wait_until_idle());
  reflector.stop();

  SimulatedServer::State truth = server.truth();
  if (projects) {
    std::erase_if(truth, [](const auto& entry) { return !is_wanted(*entry.second); });
  }
  SimulatedServer::State copy;
  for (const SharedObject& object : reflector.snapshot()) {
    copy[key_of(*object)] = object;
  }
  ASSERT_EQ(text_of(copy), text_of(truth));
  for (const Listener* listener : {&first, &second}) {
    ASSERT_EQ(listener->problem(), "");
    ASSERT_EQ(text_of(listener->state()), text_of(truth));
  }
  for (const char* label : {"x", "y", "z"}) {
    SimulatedServer::State expected = truth;
    std::erase_if(expected, [&](const auto& entry) {
      return text_member(*entry.second, {"metadata", "labels", "l"}) != label;
    });
    SimulatedServer::State found;
    for (const SharedObject& object : reflector.by_index("label", label)) {
      found[key_of(*object)] = object;
    }
    ASSERT_EQ(text_of(found), text_of(expected)) << label;
  }
  ASSERT_LE(server.longest_sleep(), seconds(60));
  // Once the server is well, a stream that it does not do, a list and a watch or two are all it takes.
  ASSERT_LE(server.calls(), kFaultyCalls + 6);
}

TEST(ReflectorSimulation, ConvergesToTheTruthWhateverHappens) {
  testing::for_each_seed(run);
}

}  // namespace
}  // namespace plimsoll::kube
