#include "kube/reflector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>

#include "tests/kube/partial_client.h"
#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"

namespace plimsoll::kube {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

const Resource kMaps{"", "v1", "configmaps", true};

// Time that passes only while the reflector sleeps or a scripted watch lasts.
class VirtualTime final : public Clock, public Sleeper {
 public:
  WallTime wall_now() const override { return WallTime{} + now_.load(); }
  SteadyTime steady_now() const override { return SteadyTime{} + now_.load(); }
  bool sleep_for(milliseconds duration, const std::stop_token& stop) override {
    pass(duration);
    const std::lock_guard lock(mutex_);
    sleeps_.push_back(duration);
    return !stop.stop_requested();
  }
  void pass(milliseconds duration) { now_ = now_.load() + duration; }
  std::vector<milliseconds> sleeps() const {
    const std::lock_guard lock(mutex_);
    return sleeps_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<milliseconds> sleeps_;
  std::atomic<milliseconds> now_{milliseconds(0)};
};

Json object(const std::string& name, int version, const std::string& data = "") {
  Json map;
  map["metadata"]["name"] = name;
  map["metadata"]["namespace"] = "ns";
  map["metadata"]["resourceVersion"] = std::to_string(version);
  map["data"]["x"] = data;
  return map;
}

Json list_of(int version, const std::vector<Json>& items) {
  Json list;
  list["metadata"]["resourceVersion"] = std::to_string(version);
  list["items"] = Json(::Json::arrayValue);
  for (const Json& item : items) {
    list["items"].append(item);
  }
  return list;
}

// An API server as a script: what each list and each watch answers, in order. When the script has run out,
// watches wait to be stopped.
class ScriptedClient : public plimsoll::testing::PartialClient {
 public:
  using Emit = std::function<void(const WatchEvent&)>;
  using List = std::function<Result<Json>(const ListOptions&)>;
  using Watch = std::function<Result<void>(const WatchOptions&, const Emit&)>;

  Result<Json> list(const Resource&, const std::string&, const ListOptions& what,
                    const CallOptions&) override {
    List step;
    {
      const std::lock_guard lock(mutex_);
      calls_.push_back("list " + what.resource_version + (what.limit > 0 ? " paged" : ""));
      if (lists.empty()) {
        return Error(ErrorCode::kInternal, "the script has no more lists");
      }
      step = lists.front();
      lists.pop_front();
    }
    return step(what);
  }

  Result<void> watch(const Resource&, const std::string&, const WatchOptions& options, const Emit& on_event,
                     std::stop_token stop) override {
    Watch step;
    {
      std::unique_lock lock(mutex_);
      calls_.push_back((options.send_initial_events ? "stream " : "watch ") + options.resource_version);
      last_watch_ = options;
      if (watches.empty()) {
        idle_ = true;
        changed_.notify_all();
        changed_.wait(lock, stop, [] { return false; });
        return Error(ErrorCode::kCancelled, "stopped");
      }
      step = watches.front();
      watches.pop_front();
    }
    return step(options, on_event);
  }

  // Until the script has run out. False: it did not within kPatience.
  bool wait_until_idle() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, testing::kPatience, [this] { return idle_; });
  }
  std::vector<std::string> calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  WatchOptions last_watch() const {
    const std::lock_guard lock(mutex_);
    return last_watch_;
  }

  // To be filled before the reflector starts.
  std::deque<List> lists;
  std::deque<Watch> watches;

 private:
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<std::string> calls_;
  WatchOptions last_watch_;
  bool idle_ = false;
};

ScriptedClient::List answer(Json list) {
  return [list](const ListOptions&) { return list; };
}
ScriptedClient::List refuse_list(ErrorCode code, const std::string& message = "refused") {
  return [=](const ListOptions&) { return Error(code, message); };
}

class ReflectorTest : public ::testing::Test {
 protected:
  Reflector::Options options() {
    Reflector::Options options;
    options.resource = kMaps;
    options.clock = &time_;
    options.sleeper = &time_;
    options.seed = 1;
    options.stream_lists = false;
    options.on_change = [this](const Reflector::Change& change) {
      changes_.push_back((change.kind == Reflector::Change::Kind::kSet ? "set " : "removed ") + change.key +
                         " " + text_member(*change.object, {"metadata", "resourceVersion"}));
    };
    return options;
  }

  struct Event {
    WatchEventType type;
    Json object;
  };
  // A watch that lasts so long, tells these events, and ends so.
  ScriptedClient::Watch lasting(milliseconds duration, std::vector<Event> events, Result<void> end = {}) {
    return [=, this](const WatchOptions&, const ScriptedClient::Emit& emit) {
      time_.pass(duration);
      for (const Event& event : events) {
        emit({event.type, event.object});
      }
      return end;
    };
  }
  ScriptedClient::Watch failing(ErrorCode code, const std::string& message = "refused") {
    return lasting(milliseconds(0), {}, Error(code, message));
  }

  VirtualTime time_;
  ScriptedClient client_;
  std::vector<std::string> changes_;  // read only when the reflector's thread is idle or stopped
};

constexpr milliseconds kLong{300'000};

TEST_F(ReflectorTest, ListsFromTheCacheThenWatchesFromWhereTheListEnds) {
  client_.lists = {answer(list_of(7, {object("a", 3), object("b", 5)}))};
  Reflector reflector(client_, options());
  EXPECT_FALSE(reflector.has_synced());
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_TRUE(reflector.has_synced());
  EXPECT_EQ(reflector.size(), 2U);
  EXPECT_EQ(text_member(*reflector.find("ns/a"), {"metadata", "resourceVersion"}), "3");
  EXPECT_EQ(reflector.find("ns/z"), nullptr);
  EXPECT_THAT(client_.calls(), ElementsAre("list 0", "watch 7"));
  EXPECT_THAT(changes_, ElementsAre("set ns/a 3", "set ns/b 5"));
  const WatchOptions requested = client_.last_watch();
  EXPECT_GE(requested.server_timeout, std::chrono::seconds(300));
  EXPECT_LE(requested.server_timeout, std::chrono::seconds(600));
}

TEST_F(ReflectorTest, AHandlerThatThrowsEndsNeitherTheWatchNorOtherHandlers) {
  client_.lists = {answer(list_of(7, {object("a", 3), object("b", 5)}))};
  client_.watches = {lasting(kLong, {{WatchEventType::kAdded, object("c", 8)}})};
  Reflector reflector(client_, options());
  reflector.add_handler([](const Reflector::Change&) { throw std::runtime_error("no such member"); });
  std::vector<std::string> later;
  reflector.add_handler([&](const Reflector::Change& change) { later.push_back(change.key); });
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_THAT(changes_, ElementsAre("set ns/a 3", "set ns/b 5", "set ns/c 8"));
  EXPECT_THAT(later, ElementsAre("ns/a", "ns/b", "ns/c"));
  EXPECT_THAT(client_.calls(), ElementsAre("list 0", "watch 7", "watch 8"));
}

TEST_F(ReflectorTest, AnObjectThatCannotBeKeptIsLeftOutAndTheOthersAreNot) {
  client_.lists = {answer(list_of(7, {object("a", 3), object("bad", 4), object("b", 5)}))};
  Reflector::Options throwing = options();
  throwing.project = [](const JsonView& view) {
    if (text_member(view, {"metadata", "name"}) == "bad") {
      throw 7;
    }
    return tree_of(view);
  };
  Reflector reflector(client_, throwing);
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_TRUE(reflector.has_synced());
  EXPECT_THAT(changes_, ElementsAre("set ns/a 3", "set ns/b 5"));
}

TEST_F(ReflectorTest, AppliesEventsAndTakesTheVersionFromEachAlsoFromBookmarks) {
  client_.lists = {answer(list_of(7, {object("a", 3)}))};
  client_.watches = {lasting(kLong, {{WatchEventType::kAdded, object("b", 8)},
                                     {WatchEventType::kModified, object("a", 9)},
                                     {WatchEventType::kDeleted, object("b", 10)}}),
                     lasting(kLong, {{WatchEventType::kBookmark, object("", 50)}})};
  Reflector reflector(client_, options());
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_THAT(client_.calls(), ElementsAre("list 0", "watch 7", "watch 10", "watch 50"));
  EXPECT_THAT(changes_, ElementsAre("set ns/a 3", "set ns/b 8", "set ns/a 9", "removed ns/b 10"));
  EXPECT_EQ(reflector.size(), 1U);
  EXPECT_THAT(time_.sleeps(), IsEmpty());
}

TEST_F(ReflectorTest, AnExpiredWatchListsAgainAndFindsWhatWasMissed) {
  client_.lists = {answer(list_of(7, {object("a", 3), object("b", 5), object("c", 6)})),
                   answer(list_of(90, {object("a", 3), object("c", 80), object("d", 85)}))};
  client_.watches = {lasting(kLong, {}, Error(ErrorCode::kExpired, "too old"))};
  Reflector reflector(client_, options());
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_THAT(client_.calls(), ElementsAre("list 0", "watch 7", "list 7", "watch 90"));
  // What did not change is not told again.
  EXPECT_THAT(changes_, ElementsAre("set ns/a 3", "set ns/b 5", "set ns/c 6", "set ns/c 80", "set ns/d 85",
                                    "removed ns/b 5"));
}

Json end_of_initial_events(int version) {
  Json bookmark;
  bookmark["metadata"]["resourceVersion"] = std::to_string(version);
  bookmark["metadata"]["annotations"]["k8s.io/initial-events-end"] = "true";
  return bookmark;
}

TEST_F(ReflectorTest, TakesTheListFromTheWatchAndGoesOnWatching) {
  client_.watches = {lasting(kLong, {{WatchEventType::kAdded, object("b", 5)},
                                     {WatchEventType::kAdded, object("a", 3)},
                                     {WatchEventType::kAdded, object("gone again", 4)},
                                     {WatchEventType::kModified, object("b", 6)},
                                     {WatchEventType::kDeleted, object("gone again", 7)},
                                     {WatchEventType::kBookmark, end_of_initial_events(7)},
                                     {WatchEventType::kModified, object("a", 8)}}),
                     lasting(kLong, {{WatchEventType::kBookmark, object("", 20)}})};
  Reflector::Options with = options();
  with.stream_lists = true;
  Reflector reflector(client_, with);
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_TRUE(reflector.has_synced());
  EXPECT_THAT(client_.calls(), ElementsAre("stream ", "watch 8", "watch 20"));
  EXPECT_THAT(changes_, ElementsAre("set ns/a 3", "set ns/b 6", "set ns/a 8"));
  EXPECT_THAT(time_.sleeps(), IsEmpty());
}

TEST_F(ReflectorTest, AStreamedListReplacesTheCopyOnlyWhenItIsWhole) {
  client_.watches = {
      lasting(kLong, {{WatchEventType::kAdded, object("a", 3)},
                      {WatchEventType::kAdded, object("b", 4)},
                      {WatchEventType::kBookmark, end_of_initial_events(7)}}),
      failing(ErrorCode::kExpired),
      lasting(kLong, {{WatchEventType::kAdded, object("a", 50)}}, Error(ErrorCode::kUnavailable, "cut")),
      lasting(kLong, {{WatchEventType::kAdded, object("a", 50)},
                      {WatchEventType::kBookmark, end_of_initial_events(60)}})};
  client_.lists = {refuse_list(ErrorCode::kUnavailable)};
  Reflector::Options with = options();
  with.stream_lists = true;
  Reflector reflector(client_, with);
  client_.lists[0] = [&](const ListOptions&) {
    EXPECT_EQ(text_member(*reflector.find("ns/a"), {"metadata", "resourceVersion"}), "3");
    return Error(ErrorCode::kUnavailable, "refused");
  };
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_THAT(client_.calls(),
              ElementsAre("stream ", "watch 7", "stream 7", "list 7", "stream 7", "watch 60"));
  EXPECT_THAT(changes_, ElementsAre("set ns/a 3", "set ns/b 4", "set ns/a 50", "removed ns/b 4"));
}

TEST_F(ReflectorTest, AStreamThatIsRefusedOrMisunderstoodIsReplacedByAList) {
  const std::vector<ScriptedClient::Watch> kRefusals = {
      failing(ErrorCode::kInvalid, "sendInitialEvents is forbidden"),
      failing(ErrorCode::kForbidden),
      failing(ErrorCode::kUnavailable),
      lasting(kLong, {}),  // a clean end within the list
      lasting(kLong, {{WatchEventType::kAdded, object("z", 2)}}),
  };
  for (std::size_t i = 0; i < kRefusals.size(); ++i) {
    ScriptedClient client;
    client.watches = {kRefusals[i], failing(ErrorCode::kExpired), kRefusals[i]};
    client.lists = {answer(list_of(7, {object("a", 3)})), answer(list_of(9, {object("a", 8)}))};
    Reflector::Options with = options();
    with.stream_lists = true;
    Reflector reflector(client, with);
    reflector.start();
    ASSERT_TRUE(client.wait_until_idle());
    EXPECT_THAT(client.calls(), ElementsAre("stream ", "list 0", "watch 7", "stream 7", "list 7", "watch 9"))
        << i;
    EXPECT_EQ(reflector.size(), 1U);
  }
}

// A server from before sendInitialEvents sends what there is and then events, without an end in between.
TEST_F(ReflectorTest, AServerThatIgnoresTheQuestionIsNotAskedAgain) {
  bool was_stopped = false;
  client_.watches = {[&](const WatchOptions&, const ScriptedClient::Emit& emit) -> Result<void> {
                       emit({WatchEventType::kAdded, object("a", 3)});
                       emit({WatchEventType::kBookmark, object("", 9)});
                       was_stopped = true;
                       return Error(ErrorCode::kCancelled, "stopped");
                     },
                     failing(ErrorCode::kExpired)};
  client_.lists = {answer(list_of(7, {object("a", 3)})), answer(list_of(10, {object("a", 3)}))};
  Reflector::Options with = options();
  with.stream_lists = true;
  Reflector reflector(client_, with);
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_TRUE(was_stopped);
  EXPECT_THAT(client_.calls(), ElementsAre("stream ", "list 0", "watch 7", "list 7", "watch 10"));
}

TEST_F(ReflectorTest, AnExpiredStreamIsAskedForTheMostRecentAndAnOverloadedServerIsLeftAlone) {
  const ScriptedClient::Watch whole = lasting(kLong, {{WatchEventType::kBookmark, end_of_initial_events(7)}});
  client_.watches = {failing(ErrorCode::kTooManyRequests), whole, failing(ErrorCode::kExpired),
                     failing(ErrorCode::kTimeout, "Too large resource version: 7, current: 3"), whole};
  Reflector::Options with = options();
  with.stream_lists = true;
  Reflector reflector(client_, with);
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_THAT(client_.calls(),
              ElementsAre("stream ", "stream ", "watch 7", "stream 7", "stream ", "watch 7"));
  EXPECT_EQ(time_.sleeps().size(), 2U);
}

class Counting final : public ReflectorObserver {
 public:
  void list_began() override { ++lists; }
  void listed(std::chrono::nanoseconds, std::size_t items) override { listed_items += items; }
  void watch_began() override { ++watches; }
  void watched(std::chrono::nanoseconds time, std::size_t events) override {
    watched_time += time;
    watched_events += events;
  }
  void watch_was_short() override { ++short_watches; }
  void version(const std::string& version) override { last_version = version; }

  int lists = 0;
  std::size_t listed_items = 0;
  int watches = 0;
  std::chrono::nanoseconds watched_time{};
  std::size_t watched_events = 0;
  int short_watches = 0;
  std::string last_version;
};

TEST_F(ReflectorTest, TellsItsObserverOfListsAndWatches) {
  client_.lists = {answer(list_of(7, {object("a", 3), object("b", 4)})), answer(list_of(9, {object("a", 3)})),
                   answer(list_of(11, {}))};
  client_.watches = {
      lasting(kLong, {{WatchEventType::kAdded, object("c", 8)}, {WatchEventType::kBookmark, object("", 9)}}),
      failing(ErrorCode::kExpired), lasting(milliseconds(0), {})};
  Counting counting;
  Reflector::Options with = options();
  with.observer = &counting;
  Reflector reflector(client_, with);
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  reflector.stop();
  EXPECT_EQ(counting.lists, 3);
  EXPECT_EQ(counting.listed_items, 3U);
  EXPECT_EQ(counting.watches, 4);
  EXPECT_EQ(counting.watched_events, 2U);
  EXPECT_EQ(counting.watched_time, kLong);
  EXPECT_EQ(counting.short_watches, 1);
  EXPECT_EQ(counting.last_version, "11");
}

TEST_F(ReflectorTest, AnExpiredListIsRepeatedAtOnceFromTheSourceInPages) {
  client_.lists = {answer(list_of(7, {})), refuse_list(ErrorCode::kExpired), answer(list_of(90, {})),
                   answer(list_of(91, {}))};
  client_.watches = {failing(ErrorCode::kExpired), failing(ErrorCode::kExpired)};
  Reflector reflector(client_, options());
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_THAT(client_.calls(),
              ElementsAre("list 0", "watch 7", "list 7", "list  paged", "watch 90", "list 90", "watch 91"));
}

TEST_F(ReflectorTest, HistoryThatWentBackIsReadFromTheSource) {
  const std::string kAhead = "Too large resource version: 700, current: 9";
  client_.lists = {answer(list_of(700, {object("a", 650)})), refuse_list(ErrorCode::kTimeout, kAhead),
                   answer(list_of(9, {object("b", 8)}))};
  client_.watches = {failing(ErrorCode::kTimeout, kAhead)};
  Reflector reflector(client_, options());
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_THAT(client_.calls(), ElementsAre("list 0", "watch 700", "list 700", "list  paged", "watch 9"));
  EXPECT_EQ(reflector.find("ns/a"), nullptr);
  EXPECT_NE(reflector.find("ns/b"), nullptr);
}

TEST_F(ReflectorTest, ATransientFailureWatchesAgainWithoutAList) {
  client_.lists = {answer(list_of(7, {}))};
  client_.watches = {failing(ErrorCode::kUnavailable), failing(ErrorCode::kTooManyRequests),
                     failing(ErrorCode::kTimeout),
                     lasting(kLong, {{WatchEventType::kAdded, object("a", 8)}})};
  Reflector reflector(client_, options());
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_THAT(client_.calls(), ElementsAre("list 0", "watch 7", "watch 7", "watch 7", "watch 7", "watch 8"));
  EXPECT_EQ(time_.sleeps().size(), 3U);
}

TEST_F(ReflectorTest, AServerGoneForLongMayHaveForgottenTheVersion) {
  client_.lists = {answer(list_of(7, {})), answer(list_of(8, {}))};
  for (int i = 0; i < 4; ++i) {
    client_.watches.push_back(lasting(milliseconds(90'000), {}, Error(ErrorCode::kUnavailable, "refused")));
  }
  Reflector reflector(client_, options());
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_THAT(client_.calls(),
              ElementsAre("list 0", "watch 7", "watch 7", "watch 7", "watch 7", "list 7", "watch 8"));
}

TEST_F(ReflectorTest, AWatchCutAfterEventsIsNoFailureOfItsVersion) {
  client_.lists = {answer(list_of(7, {}))};
  for (int i = 0; i < 20; ++i) {
    client_.watches.push_back(lasting(kLong, {{WatchEventType::kAdded, object("a", 8 + i)}},
                                      Error(ErrorCode::kUnavailable, "cut")));
  }
  Reflector reflector(client_, options());
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_EQ(client_.calls().size(), 22U);
  EXPECT_EQ(client_.calls().back(), "watch 27");
}

TEST_F(ReflectorTest, WatchesThatEndAtOnceAreAFault) {
  client_.lists = {answer(list_of(7, {})), answer(list_of(8, {}))};
  client_.watches = {lasting(milliseconds(10), {})};
  Reflector reflector(client_, options());
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_THAT(client_.calls(), ElementsAre("list 0", "watch 7", "list 7", "watch 8"));
  EXPECT_EQ(time_.sleeps().size(), 1U);
}

TEST_F(ReflectorTest, BacksOffFromADeadServerUpToTheCapAndForgetsAfterGoodTimes) {
  for (int i = 0; i < 9; ++i) {
    client_.lists.push_back(refuse_list(ErrorCode::kUnavailable));
  }
  client_.lists.push_back(answer(list_of(7, {})));
  client_.watches = {lasting(kLong, {}), lasting(kLong, {}, Error(ErrorCode::kUnavailable, "cut"))};
  Reflector reflector(client_, options());
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  const std::vector<milliseconds> sleeps = time_.sleeps();
  ASSERT_EQ(sleeps.size(), 10U);
  milliseconds base{800};
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_GE(sleeps[i], base) << i;
    EXPECT_LE(sleeps[i], base * 2) << i;
    base = std::min(base * 2, milliseconds(30'000));
  }
  EXPECT_LE(sleeps[9], milliseconds(1'600));  // ten good minutes later
}

TEST_F(ReflectorTest, IsNotSyncedBeforeTheFirstList) {
  std::atomic<bool> was_synced = true;
  client_.lists = {refuse_list(ErrorCode::kForbidden), answer(list_of(7, {}))};
  Reflector reflector(client_, options());
  client_.lists[1] = [&](const ListOptions&) {
    was_synced = reflector.has_synced();
    return list_of(7, {});
  };
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_FALSE(was_synced);
  EXPECT_TRUE(reflector.has_synced());
}

TEST_F(ReflectorTest, KeepsOnlyWhatTheProjectionKeeps) {
  client_.lists = {answer(list_of(7, {object("a", 3, "big"), object("skip", 4)}))};
  client_.watches = {lasting(kLong, {{WatchEventType::kModified, object("a", 8, "skip me")},
                                     {WatchEventType::kModified, object("skip", 9)},
                                     {WatchEventType::kDeleted, object("skip", 10)}})};
  Reflector::Options with = options();
  with.project = [](const JsonView& full) {
    if (text_member(full, {"metadata", "name"}) == "skip" || text_member(full, {"data", "x"}) == "skip me") {
      return Json();
    }
    Json kept;
    kept["metadata"] = tree_of(member(full, {"metadata"}));
    return kept;
  };
  Reflector reflector(client_, with);
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_THAT(changes_, ElementsAre("set ns/a 3", "removed ns/a 3"));
  EXPECT_EQ(reflector.size(), 0U);
}

TEST_F(ReflectorTest, KeepsOnlyTheMembersThatItIsToldTo) {
  client_.lists = {answer(list_of(7, {object("a", 3, "big")}))};
  client_.watches = {lasting(kLong, {{WatchEventType::kAdded, object("b", 8, "big")}})};
  Reflector::Options with = options();
  with.keep.without({}, {"data"});
  Reflector reflector(client_, with);
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_THAT(changes_, ElementsAre("set ns/a 3", "set ns/b 8"));
  for (const SharedObject& kept : reflector.snapshot()) {
    EXPECT_FALSE((*kept).member("data").has_value());
    EXPECT_TRUE((*kept).member("metadata").has_value());
  }
}

TEST_F(ReflectorTest, SeveralHandlersAreToldTheSameInTheirOrder) {
  client_.lists = {answer(list_of(7, {object("a", 3)}))};
  client_.watches = {lasting(kLong, {{WatchEventType::kDeleted, object("a", 8)}})};
  Reflector reflector(client_, options());
  for (const char* name : {"second ", "third "}) {
    reflector.add_handler([this, name](const Reflector::Change& change) {
      changes_.push_back(name + text_member(*change.object, {"metadata", "resourceVersion"}));
    });
  }
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_THAT(changes_,
              ElementsAre("set ns/a 3", "second 3", "third 3", "removed ns/a 8", "second 8", "third 8"));
}

// "kind before -> now", with a ? after a tombstone.
std::string transition(const Reflector::Change& change) {
  const auto version = [](const SharedObject& object) {
    return object ? text_member(*object, {"metadata", "resourceVersion"}) : std::string("none");
  };
  return (change.kind == Reflector::Change::Kind::kSet ? "set " : "removed ") + version(change.before) +
         " -> " + version(change.object) + (change.is_final_state_unknown ? "?" : "");
}

TEST_F(ReflectorTest, ChangesTellWhatWasBeforeAndWhetherTheEndIsKnown) {
  client_.lists = {answer(list_of(7, {object("a", 3)})), answer(list_of(20, {}))};
  client_.watches = {lasting(kLong, {{WatchEventType::kModified, object("a", 8)},
                                     {WatchEventType::kDeleted, object("a", 9)},
                                     {WatchEventType::kDeleted, object("never seen", 10)},
                                     {WatchEventType::kAdded, object("a", 11)}}),
                     failing(ErrorCode::kExpired)};
  Reflector::Options with = options();
  with.on_change = [this](const Reflector::Change& change) { changes_.push_back(transition(change)); };
  Reflector reflector(client_, with);
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_THAT(changes_, ElementsAre("set none -> 3", "set 3 -> 8", "removed 8 -> 9", "set none -> 11",
                                    "removed 11 -> 11?"));
}

TEST_F(ReflectorTest, AnObjectMadeAnewInBetweenIsRemovedFirst) {
  Json old_one = object("a", 3);
  old_one["metadata"]["uid"] = "one";
  Json new_one = object("a", 50);
  new_one["metadata"]["uid"] = "two";
  client_.lists = {answer(list_of(7, {old_one})), answer(list_of(60, {new_one}))};
  client_.watches = {failing(ErrorCode::kExpired)};
  Reflector::Options with = options();
  with.on_change = [this](const Reflector::Change& change) { changes_.push_back(transition(change)); };
  Reflector reflector(client_, with);
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_THAT(changes_, ElementsAre("set none -> 3", "removed 3 -> 3?", "set none -> 50"));
}

TEST_F(ReflectorTest, IndexesFollowTheCopy) {
  Json labelled = object("a", 3);
  labelled["metadata"]["labels"]["job"] = "ads";
  Json relabelled = labelled;
  relabelled["metadata"]["labels"]["job"] = "feed";
  relabelled["metadata"]["resourceVersion"] = "8";
  client_.lists = {answer(list_of(7, {labelled, object("b", 4)}))};
  client_.watches = {lasting(kLong, {{WatchEventType::kModified, relabelled}}),
                     lasting(kLong, {{WatchEventType::kDeleted, object("b", 9)}})};
  Reflector::Options with = options();
  with.indexers = {{"namespace", index_by_namespace}, {"job", index_by_label("job")}};
  Reflector reflector(client_, with);
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_THAT(reflector.by_index("job", "ns/ads"), IsEmpty());
  ASSERT_EQ(reflector.by_index("job", "ns/feed").size(), 1U);
  EXPECT_EQ(reflector.by_index("job", "ns/feed").front(), reflector.find("ns/a"));
  EXPECT_EQ(reflector.by_index("namespace", "ns").size(), 1U);
}

TEST_F(ReflectorTest, TellsEverythingAgainNowAndThen) {
  client_.lists = {answer(list_of(7, {object("a", 3), object("b", 4)}))};
  client_.watches = {lasting(std::chrono::hours(8), {{WatchEventType::kBookmark, object("", 8)}}),
                     lasting(std::chrono::hours(4), {{WatchEventType::kBookmark, object("", 9)}}),
                     lasting(std::chrono::hours(8), {})};
  Reflector reflector(client_, options());
  int repeated = 0;
  reflector.add_handler([&](const Reflector::Change& change) { repeated += change.before == change.object; });
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  // Due between 9 and 11 hours after the start: after 12, and not again 8 hours later.
  EXPECT_THAT(changes_, ElementsAre("set ns/a 3", "set ns/b 4", "set ns/a 3", "set ns/b 4"));
  EXPECT_EQ(repeated, 2);
}

TEST_F(ReflectorTest, TellsNothingAgainWhenThatIsOff) {
  client_.lists = {answer(list_of(7, {object("a", 3)}))};
  client_.watches = {lasting(std::chrono::hours(1000), {{WatchEventType::kBookmark, object("", 8)}})};
  Reflector::Options with = options();
  with.resync = milliseconds(0);
  Reflector reflector(client_, with);
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  EXPECT_THAT(changes_, ElementsAre("set ns/a 3"));
}

TEST_F(ReflectorTest, WaitsForTheFirstListOrTheStop) {
  client_.lists = {answer(list_of(7, {object("a", 3)}))};
  Reflector reflector(client_, options());
  std::stop_source stopped;
  stopped.request_stop();
  EXPECT_FALSE(reflector.wait_for_sync(stopped.get_token()));
  reflector.start();
  EXPECT_TRUE(reflector.wait_for_sync({}));
  EXPECT_EQ(reflector.size(), 1U);
  EXPECT_TRUE(reflector.wait_for_sync(stopped.get_token()));
}

TEST_F(ReflectorTest, SharedObjectsOutliveTheirReplacement) {
  client_.lists = {answer(list_of(7, {object("a", 3, "old")}))};
  Reflector reflector(client_, options());
  reflector.start();
  ASSERT_TRUE(client_.wait_until_idle());
  const std::vector<SharedObject> before = reflector.snapshot();
  reflector.stop();
  ASSERT_EQ(before.size(), 1U);
  EXPECT_EQ(text_member(*before.front(), {"data", "x"}), "old");
}

TEST_F(ReflectorTest, StopsWhileItWatchesWhileItSleepsAndWithoutEverStarting) {
  { Reflector never(client_, options()); }
  client_.lists = {answer(list_of(7, {}))};
  {
    Reflector watching(client_, options());
    watching.start();
    ASSERT_TRUE(client_.wait_until_idle());
    watching.stop();
    watching.stop();
  }
  ScriptedClient dead;  // every list fails, and the sleeps between are real
  Reflector::Options slow = options();
  slow.clock = &system_clock();
  slow.sleeper = &system_sleeper();
  slow.backoff.initial = 2 * testing::kPatience;
  Reflector sleeping(dead, slow);
  sleeping.start();
  EXPECT_TRUE(testing::eventually(
      "a list is requested", [&] { return dead.calls(); }, Not(IsEmpty())));
  const auto began = std::chrono::steady_clock::now();
  sleeping.stop();
  EXPECT_LT(std::chrono::steady_clock::now() - began, testing::kPatience);
}

}  // namespace
}  // namespace plimsoll::kube
