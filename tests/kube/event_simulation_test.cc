// The event recorder against a server that refuses, forgets and loses answers at random, on a virtual clock:
// every event that was told is written or counted as lost, and nobody can flood the server.
#include <gtest/gtest.h>

#include <mutex>
#include <random>
#include <set>

#include "kube/event_recorder.h"
#include "tests/kube/partial_client.h"
#include "tests/kube/simulation.h"
#include "tests/kube/virtual_clock.h"
#include "tests/testing/patience.h"

namespace plimsoll::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Dice;

constexpr const char* kCombined = "(combined from similar events): ";

// The recorder's thread only, but for what is read after its end.
class UnreliableEvents final : public testing::PartialClient, public Sleeper {
 public:
  explicit UnreliableEvents(unsigned seed) : dice_(seed), one_in_(1 + dice_.roll(6)) {}

  Result<Json> create(const Resource&, const std::string&, const Json& object, const CallOptions&) override {
    if (std::optional<Error> error = refuse()) {
      return *error;
    }
    const auto [place, is_new] = events_.try_emplace(object["metadata"]["name"].asString(), object);
    if (!is_new) {
      return Error(ErrorCode::kAlreadyExists, "it is there");
    }
    return answer(place->second);
  }
  Result<Json> patch(const Resource&, const std::string&, const std::string& name, PatchType,
                     const Json& patch, const std::string&, const CallOptions&) override {
    if (std::optional<Error> error = refuse()) {
      return *error;
    }
    if (dice_.roll(20) == 0) {
      events_.erase(name);  // older than an hour
    }
    const auto found = events_.find(name);
    if (found == events_.end()) {
      return Error(ErrorCode::kNotFound, "it was forgotten");
    }
    for (const std::string& field : patch.getMemberNames()) {
      found->second[field] = patch[field];
    }
    return answer(found->second);
  }
  bool sleep_for(milliseconds duration, const std::stop_token& stop) override {
    EXPECT_LE(duration, seconds(10));
    return !stop.stop_requested();
  }

  const std::map<std::string, Json>& events() const { return events_; }

 private:
  std::optional<Error> refuse() {
    if (one_in_ == 1 || dice_.roll(one_in_) != 0) {
      return std::nullopt;
    }
    switch (dice_.roll(4)) {
      case 0: return Error(ErrorCode::kTooManyRequests, "429");
      case 1: return Error(ErrorCode::kForbidden, "the namespace is being terminated");
      default: return Error(ErrorCode::kUnavailable, "no connection");
    }
  }
  Result<Json> answer(const Json& event) {
    if (dice_.roll(10) == 0) {
      return Error(ErrorCode::kTimeout, "the answer was lost");
    }
    return event;
  }

  Dice dice_;
  const int one_in_;  // 1: sound
  std::map<std::string, Json> events_;
};

void run(unsigned seed) {
  Dice dice(seed);
  testing::VirtualClock clock;
  UnreliableEvents server(seed);
  std::mutex mutex;
  std::map<EventRecorder::Loss, int> lost;
  EventRecorder::Options options;
  options.component = "plimsoll";
  options.instance = "p";
  options.queue_limit = static_cast<std::size_t>(20 + dice.roll(60));
  options.seed = seed;
  options.clock = &clock;
  options.sleeper = &server;
  options.on_loss = [&](EventRecorder::Loss why) {
    const std::lock_guard lock(mutex);
    ++lost[why];
  };
  EventRecorder recorder(server, options);
  std::map<std::string, int> told;  // by object, reason and message
  std::map<std::string, int> of_object;
  std::map<std::string, int> of_reason;  // by object and reason
  const int count = dice.roll(90);
  for (int i = 0; i < count; ++i) {
    const std::string name = "job-" + std::to_string(dice.roll(3));
    const std::string reason = dice.roll(2) == 0 ? "Resized" : "OOMDetected";
    const std::string message = "rank " + std::to_string(dice.roll(20));
    recorder.record({.api_version = "plimsoll.dev/v1alpha1",
                     .kind = "TrainingJob",
                     .namespace_name = "ns",
                     .name = name,
                     .uid = name},
                    EventType::kNormal, reason, message);
    clock.pass(milliseconds(1 + dice.roll(2'000)));  // all of them within ten minutes
    if (i < static_cast<int>(options.queue_limit)) {
      ++told[name + reason + message];
      ++of_object[name];
      ++of_reason[name + reason];
    }
  }
  recorder.start();
  recorder.stop(testing::kPatience);

  const int kept = std::min(count, static_cast<int>(options.queue_limit));
  ASSERT_EQ(lost[EventRecorder::Loss::kQueueFull], count - kept);
  // The clock stands while the recorder writes, so that each object has its burst and no more.
  int over_the_burst = 0;
  for (const auto& [name, times] : of_object) {
    over_the_burst += std::max(0, times - 25);
  }
  ASSERT_EQ(lost[EventRecorder::Loss::kTooMany], over_the_burst);
  // What is there was told, in the same words, and not more often than it was told.
  std::map<std::string, int> distinct;
  int written_at_most = 0;
  for (const auto& [name, event] : server.events()) {
    const std::string kind = event["involvedObject"]["name"].asString() + event["reason"].asString();
    const std::string message = event["message"].asString();
    const bool is_combined = message.starts_with(kCombined);
    const std::string key = kind + message.substr(is_combined ? std::strlen(kCombined) : 0);
    ASSERT_TRUE(told.contains(key)) << key;
    const int times = event["count"].asInt();
    ASSERT_GE(times, 1);
    ASSERT_LE(times, is_combined ? of_reason[kind] : told[key]) << message;
    written_at_most += times;
    ++distinct[event["involvedObject"]["name"].asString()];
  }
  ASSERT_LE(written_at_most, kept);
  for (const auto& [name, events] : distinct) {
    ASSERT_LE(events, 25) << name;
  }
  if (lost[EventRecorder::Loss::kNotWritten] == 0 && kept > 0) {
    ASSERT_FALSE(server.events().empty());
  }
}

TEST(EventSimulation, EveryEventIsWrittenOrCountedAndNobodyFloodsTheServer) {
  testing::for_each_seed(run);
}

}  // namespace
}  // namespace plimsoll::kube
