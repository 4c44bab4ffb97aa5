#include "webhook/decision_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <memory>
#include <vector>

#include "tests/testing/eventually.h"

namespace plimsoll::webhook {
namespace {

using namespace std::chrono_literals;
using testing::eventually;
using ::testing::IsEmpty;
using ::testing::Not;

DecisionScheduler::Time in(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

// Computes until it is told to stop, as a decision without end does.
void spin(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
  }
}

// A decision on a thread of its own.
class Runaway {
 public:
  Runaway(DecisionScheduler& scheduler, const std::string& namespace_name)
      : thread_([this, &scheduler, namespace_name](const std::stop_token& stop) {
          const Result<DecisionScheduler::Turn> turn = scheduler.enter(namespace_name, in(1h), stop);
          if (turn) {
            spin(turn->stop());
            stopped_for_others_ = turn->stopped_for_others();
            priority_ = ::getpriority(PRIO_PROCESS, 0);
          }
          ended_ = true;
        }) {}
  bool ended() const { return ended_; }
  bool stopped_for_others() const { return stopped_for_others_; }
  int priority() const { return priority_; }

 private:
  std::atomic<bool> ended_ = false;
  std::atomic<bool> stopped_for_others_ = false;
  std::atomic<int> priority_ = 0;
  std::jthread thread_;
};

DecisionScheduler::Options small_options() {
  return {.slots = 3, .max_long = 1, .max_waiting = 2, .long_after = 20ms, .stop_after = 40ms};
}

// Two requests that never ended took both workers, and all others waited for them.
TEST(DecisionScheduler, TwoEndlessDecisionsDoNotBlockOthers) {
  DecisionScheduler scheduler(DecisionScheduler::for_cpus(2));
  Runaway one(scheduler, "attacker");
  Runaway two(scheduler, "attacker");
  ASSERT_TRUE(eventually(
      "both are long", [&] { return scheduler.stats().running_long; }, 2U));
  for (const char* tenant : {"attacker", "other"}) {
    EXPECT_TRUE(scheduler.enter(tenant, in(0ms), {}).ok()) << tenant;
  }
  EXPECT_FALSE(one.ended() || two.ended());
}

TEST(DecisionScheduler, TooManyEndlessDecisionsAreStopped) {
  DecisionScheduler scheduler(small_options());
  Runaway lone(scheduler, "other");
  ASSERT_TRUE(eventually(
      "it is long", [&] { return scheduler.stats().running_long; }, 1U));
  // Of the namespace that has most of them, the one that has computed most.
  Runaway first(scheduler, "attacker");
  ASSERT_TRUE(eventually(
      "one of two is stopped", [&] { return scheduler.stats().stopped; }, 1U));
  Runaway second(scheduler, "attacker");
  ASSERT_TRUE(eventually(
      "another is stopped", [&] { return scheduler.stats().stopped; }, 2U));
  EXPECT_TRUE(eventually(
      "both end", [&] { return lone.ended() + first.ended() + second.ended(); }, 2));
  EXPECT_EQ(scheduler.stats().running, 1U);
}

// On a busy machine a usual decision was the third that took 50 ms, and was stopped: the one that had begun first.
TEST(DecisionScheduler, DecisionsThatAreOnlySlowAreNotStoppedInFavourOfOthers) {
  DecisionScheduler scheduler({.slots = 4, .max_long = 1, .long_after = 20ms, .stop_after = 1h});
  const Runaway first(scheduler, "a");
  const Runaway second(scheduler, "a");
  const Runaway third(scheduler, "b");
  ASSERT_TRUE(eventually(
      "all are long", [&] { return scheduler.stats().running_long; }, 3U));
  EXPECT_EQ(scheduler.stats().stopped, 0U);
  EXPECT_FALSE(first.ended() || second.ended() || third.ended());
}

TEST(DecisionScheduler, LongDecisionsGoOnAtALowerPriority) {
  DecisionScheduler scheduler(small_options());
  const int priority = ::getpriority(PRIO_PROCESS, 0);
  Runaway one(scheduler, "a");
  Runaway two(scheduler, "a");
  ASSERT_TRUE(eventually("one ends", [&] { return one.ended() || two.ended(); }));
  const Runaway& ended = one.ended() ? one : two;
  EXPECT_TRUE(ended.stopped_for_others());
  EXPECT_EQ(ended.priority(), std::min(19, priority + 10));
  EXPECT_EQ(::getpriority(PRIO_PROCESS, 0), priority);
}

TEST(DecisionScheduler, NoNamespaceHasAllSlots) {
  DecisionScheduler scheduler(small_options());
  std::vector<DecisionScheduler::Turn> turns;
  for (int i = 0; i < 2; ++i) {
    Result<DecisionScheduler::Turn> turn = scheduler.enter("a", in(0ms), {});
    ASSERT_TRUE(turn.ok());
    turns.push_back(*std::move(turn));
  }
  const Result<DecisionScheduler::Turn> more = scheduler.enter("a", in(10ms), {});
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().code, ErrorCode::kTooManyRequests);
  EXPECT_TRUE(scheduler.enter("b", in(0ms), {}).ok());
  EXPECT_EQ(scheduler.stats().refused, 1U);
}

TEST(DecisionScheduler, NamespacesTakeTurnsAndEachHasItsOwnLine) {
  DecisionScheduler scheduler(small_options());
  auto a1 = std::make_unique<Result<DecisionScheduler::Turn>>(scheduler.enter("a", in(0ms), {}));
  auto a2 = std::make_unique<Result<DecisionScheduler::Turn>>(scheduler.enter("a", in(0ms), {}));
  auto b1 = std::make_unique<Result<DecisionScheduler::Turn>>(scheduler.enter("b", in(0ms), {}));
  std::mutex mutex;
  std::vector<std::string> order;
  std::vector<std::jthread> waiting;
  for (const char* name : {"a", "a", "b"}) {
    waiting.emplace_back([&, name] {
      const Result<DecisionScheduler::Turn> turn = scheduler.enter(name, in(1h), {});
      const std::lock_guard lock(mutex);
      order.push_back(turn ? name : "refused");
    });
    ASSERT_TRUE(eventually(
        "it waits", [&] { return scheduler.stats().waiting; }, waiting.size()));
  }
  // The line of `a` is full, that of `b` is not.
  EXPECT_EQ(scheduler.enter("a", in(1h), {}).error().code, ErrorCode::kTooManyRequests);
  b1.reset();  // `a` has its share already
  const auto came = [&] {
    const std::lock_guard lock(mutex);
    return order;
  };
  ASSERT_TRUE(eventually("a turn is given", came, Not(IsEmpty())));
  EXPECT_EQ(came(), std::vector<std::string>{"b"});
  EXPECT_EQ(scheduler.stats().waiting, 2U);
  a1.reset();
  a2.reset();
  waiting.clear();
  EXPECT_EQ(order, (std::vector<std::string>{"b", "a", "a"}));
}

TEST(DecisionScheduler, TheStopReachesThoseThatWaitAndThoseThatCompute) {
  DecisionScheduler scheduler({.slots = 1, .max_long = 1});
  auto running = std::make_unique<Runaway>(scheduler, "a");
  ASSERT_TRUE(eventually(
      "it computes", [&] { return scheduler.stats().running; }, 1U));
  auto waiting = std::make_unique<Runaway>(scheduler, "b");
  ASSERT_TRUE(eventually(
      "the other waits", [&] { return scheduler.stats().waiting; }, 1U));
  waiting.reset();
  running.reset();
  EXPECT_EQ(scheduler.stats().running, 0U);
}

}  // namespace
}  // namespace plimsoll::webhook
