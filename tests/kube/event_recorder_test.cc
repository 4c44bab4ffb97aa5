#include "kube/event_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <vector>

#include "tests/kube/partial_client.h"
#include "tests/kube/virtual_clock.h"
#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"

namespace plimsoll::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using testing::VirtualClock;

ObjectReference job(const std::string& name = "ads") {
  return {.api_version = "plimsoll.dev/v1alpha1",
          .kind = "TrainingJob",
          .namespace_name = "ns",
          .name = name,
          .uid = "u-" + name};
}

// Keeps events by name; fails as told.
class EventClient final : public testing::PartialClient, public Sleeper {
 public:
  Result<Json> create(const Resource& resource, const std::string& namespace_name, const Json& object,
                      const CallOptions&) override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(path_of(resource, namespace_name), "/api/v1/namespaces/ns/events");
    if (failures > 0) {
      --failures;
      return error;
    }
    events_[object["metadata"]["name"].asString()] = object;
    return object;
  }
  Result<Json> patch(const Resource&, const std::string&, const std::string& name, PatchType type,
                     const Json& patch, const std::string&, const CallOptions&) override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(type, PatchType::kMerge);
    const auto found = events_.find(name);
    if (found == events_.end()) {
      return Error(ErrorCode::kNotFound, "it was forgotten");
    }
    for (const std::string& field : patch.getMemberNames()) {
      found->second[field] = patch[field];
    }
    return found->second;
  }
  bool sleep_for(milliseconds duration, const std::stop_token& stop) override {
    sleeps.push_back(duration);
    return !stop.stop_requested();
  }
  void forget() {
    const std::lock_guard lock(mutex_);
    events_.clear();
  }
  std::vector<std::string> told() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> all;
    for (const auto& [name, event] : events_) {
      all.push_back(event["message"].asString() + " x" + event["count"].asString());
    }
    return all;
  }

  Error error{ErrorCode::kUnavailable, "no answer"};
  int failures = 0;
  std::vector<milliseconds> sleeps;  // the recorder's thread's, until it has stopped

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Json> events_;
};

class RecorderTest : public ::testing::Test {
 protected:
  void say(EventRecorder& recorder, const std::string& message) {
    recorder.record(job(), EventType::kNormal, "Resized", message);
    clock_.pass(seconds(1));
  }
  void be_refused() {
    client_.failures = 1;
    client_.error = Error(ErrorCode::kForbidden, "the namespace is being terminated");
    EventRecorder recorder(client_, options_);
    say(recorder, "refused");
    recorder.start();
    recorder.stop(testing::kPatience);
  }

  VirtualClock clock_;
  EventClient client_;
  EventRecorder::Options options_{
      .component = "plimsoll", .instance = "p", .seed = 1, .clock = &clock_, .sleeper = &client_};
};

TEST_F(RecorderTest, WritesWhatItIsToldAndCountsUp) {
  int lost = 0;
  options_.on_loss = [&](EventRecorder::Loss) { ++lost; };
  EventRecorder recorder(client_, options_);
  say(recorder, "to 64");
  recorder.start();
  say(recorder, "to 72");
  say(recorder, "to 64");
  recorder.stop(testing::kPatience);
  EXPECT_THAT(client_.told(), ElementsAre("to 64 x2", "to 72 x1"));
  say(recorder, "too late");
  EXPECT_EQ(lost, 1);
}

TEST_F(RecorderTest, TriesAgainWhileTheServerIsAway) {
  client_.failures = 3;
  EventRecorder recorder(client_, options_);
  say(recorder, "to 64");
  recorder.start();
  recorder.stop(testing::kPatience);
  EXPECT_THAT(client_.told(), ElementsAre("to 64 x1"));
  ASSERT_EQ(client_.sleeps.size(), 3U);
  EXPECT_LE(client_.sleeps[0], seconds(10));
  EXPECT_EQ(client_.sleeps[1], seconds(10));
}

TEST_F(RecorderTest, GivesUpAfterTwelveTriesAndAtOnceWhenRefused) {
  client_.failures = 12;
  EventRecorder recorder(client_, options_);
  say(recorder, "unlucky");
  say(recorder, "lucky");
  recorder.start();
  recorder.stop(testing::kPatience);
  EXPECT_THAT(client_.told(), ElementsAre("lucky x1"));
  EXPECT_EQ(client_.sleeps.size(), 11U);

  be_refused();
  EXPECT_THAT(client_.told(), ElementsAre("lucky x1"));
  EXPECT_EQ(client_.sleeps.size(), 11U);
}

TEST_F(RecorderTest, MakesAnewWhatTheServerForgot) {
  EventRecorder recorder(client_, options_);
  recorder.start();
  say(recorder, "to 64");
  EXPECT_TRUE(testing::eventually(
      "the event is written", [&] { return client_.told(); }, ElementsAre("to 64 x1")));
  client_.forget();
  say(recorder, "to 64");
  recorder.stop(testing::kPatience);
  EXPECT_THAT(client_.told(), ElementsAre("to 64 x2"));
}

TEST_F(RecorderTest, TellsOfWhatIsLostAndWhy) {
  std::vector<EventRecorder::Loss> lost;
  options_.queue_limit = 30;
  options_.on_loss = [&](EventRecorder::Loss why) { lost.push_back(why); };
  EventRecorder recorder(client_, options_);
  for (int i = 0; i < 31; ++i) {
    say(recorder, "again");
  }
  recorder.start();
  recorder.stop(testing::kPatience);
  std::vector<EventRecorder::Loss> expected(6, EventRecorder::Loss::kTooMany);
  expected[0] = EventRecorder::Loss::kQueueFull;
  EXPECT_EQ(lost, expected);

  lost.clear();
  be_refused();
  EXPECT_THAT(lost, ElementsAre(EventRecorder::Loss::kNotWritten));
}

TEST_F(RecorderTest, DropsWhatTheQueueCannotHold) {
  options_.queue_limit = 3;
  int lost = 0;
  options_.on_loss = [&](EventRecorder::Loss) { ++lost; };
  EventRecorder recorder(client_, options_);
  for (int i = 0; i < 5; ++i) {
    say(recorder, std::to_string(i));
  }
  EXPECT_EQ(lost, 2);
  recorder.start();
  recorder.stop(testing::kPatience);
  EXPECT_THAT(client_.told(), ElementsAre("0 x1", "1 x1", "2 x1"));
}

TEST_F(RecorderTest, StopsInTimeWhileTheServerIsAway) {
  client_.failures = 1 << 30;
  options_.sleeper = &system_sleeper();
  EventRecorder recorder(client_, options_);
  say(recorder, "lost");
  recorder.start();
  recorder.stop(milliseconds(20));
  EXPECT_TRUE(client_.told().empty());
}

}  // namespace
}  // namespace plimsoll::kube
