#include "kube/work_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "tests/kube/virtual_clock.h"
#include "tests/testing/eventually.h"
#include "tests/testing/latch.h"
#include "tests/testing/random_cases.h"

namespace plimsoll::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using testing::eventually;
using testing::VirtualClock;

using Key = std::optional<std::string>;

class WorkQueueTest : public ::testing::Test {
 protected:
  VirtualClock clock_;
  WorkQueue queue_{{.clock = &clock_}};
};

TEST_F(WorkQueueTest, GivesKeysInTheOrderTheyCameEachOnce) {
  for (const char* key : {"a", "b", "a", "c", "b"}) {
    queue_.add(key);
  }
  EXPECT_EQ(queue_.size(), 3U);
  EXPECT_EQ(queue_.try_get(), Key("a"));
  EXPECT_EQ(queue_.try_get(), Key("b"));
  EXPECT_EQ(queue_.try_get(), Key("c"));
  EXPECT_EQ(queue_.try_get(), Key());
}

TEST_F(WorkQueueTest, AKeyAddedWhileItIsWorkedOnComesBackWhenThatIsDone) {
  queue_.add("a");
  EXPECT_EQ(queue_.try_get(), Key("a"));
  queue_.add("a");
  queue_.add("a");
  EXPECT_EQ(queue_.size(), 0U);
  EXPECT_EQ(queue_.try_get(), Key());
  queue_.add("b");
  queue_.done("a");
  EXPECT_EQ(queue_.try_get(), Key("b"));
  EXPECT_EQ(queue_.try_get(), Key("a"));
  queue_.done("a");
  EXPECT_EQ(queue_.try_get(), Key());
}

TEST_F(WorkQueueTest, DoneOfWhatNobodyHasIsNothing) {
  queue_.done("a");
  queue_.add("a");
  queue_.done("a");
  EXPECT_EQ(queue_.try_get(), Key("a"));
}

TEST_F(WorkQueueTest, DelayedKeysComeWhenTheyAreDue) {
  queue_.add_after("late", seconds(10));
  queue_.add_after("soon", seconds(1));
  queue_.add_after("now", seconds(0));
  queue_.add_after("past", seconds(-5));
  EXPECT_EQ(queue_.next_due(), Clock::SteadyTime{} + seconds(1));
  EXPECT_EQ(queue_.try_get(), Key("now"));
  EXPECT_EQ(queue_.try_get(), Key("past"));
  EXPECT_EQ(queue_.try_get(), Key());
  clock_.pass(milliseconds(999));
  EXPECT_EQ(queue_.try_get(), Key());
  clock_.pass(milliseconds(1));
  EXPECT_EQ(queue_.try_get(), Key("soon"));
  clock_.pass(seconds(100));
  EXPECT_EQ(queue_.try_get(), Key("late"));
  EXPECT_FALSE(queue_.next_due().has_value());
}

TEST_F(WorkQueueTest, ADelayedKeyKeepsTheEarlierTime) {
  queue_.add_after("a", seconds(10));
  queue_.add_after("a", seconds(20));
  queue_.add_after("b", seconds(10));
  queue_.add_after("b", seconds(5));
  clock_.pass(seconds(5));
  EXPECT_EQ(queue_.try_get(), Key("b"));
  clock_.pass(seconds(5));
  EXPECT_EQ(queue_.try_get(), Key("a"));
  clock_.pass(seconds(60));
  EXPECT_EQ(queue_.try_get(), Key());
}

// As client-go: the two do not know of each other, and a key may be in both.
TEST_F(WorkQueueTest, ADelayedKeyMayBeAddedAtOnceToo) {
  queue_.add_after("a", seconds(10));
  queue_.add("a");
  EXPECT_EQ(queue_.try_get(), Key("a"));
  queue_.done("a");
  clock_.pass(seconds(10));
  EXPECT_EQ(queue_.try_get(), Key("a"));
}

TEST_F(WorkQueueTest, WhatIsDueGoesBeforeWhatComesLater) {
  queue_.add_after("delayed", seconds(1));
  clock_.pass(seconds(2));
  queue_.add("later");
  EXPECT_EQ(queue_.try_get(), Key("delayed"));
  EXPECT_EQ(queue_.try_get(), Key("later"));
}

TEST_F(WorkQueueTest, ADelayWithoutEndIsNoTrouble) {
  queue_.add_after("never", nanoseconds::max());
  clock_.pass(std::chrono::hours(24 * 365));
  EXPECT_EQ(queue_.try_get(), Key());
}

TEST_F(WorkQueueTest, FailuresWaitLongerEachTimeUntilForgotten) {
  std::vector<milliseconds> waits;
  const auto fail = [&] {
    queue_.add_rate_limited("a");
    waits.push_back(std::chrono::duration_cast<milliseconds>(*queue_.next_due() - clock_.steady_now()));
    clock_.pass(waits.back());
    EXPECT_EQ(queue_.try_get(), Key("a"));
    queue_.done("a");
  };
  for (int i = 0; i < 4; ++i) {
    fail();
  }
  EXPECT_EQ(queue_.failures("a"), 4);
  queue_.forget("a");
  EXPECT_EQ(queue_.failures("a"), 0);
  fail();
  EXPECT_THAT(waits, ElementsAre(milliseconds(5), milliseconds(10), milliseconds(20), milliseconds(40),
                                 milliseconds(5)));
}

TEST_F(WorkQueueTest, AfterShuttingDownWorkersGetWhatIsLeft) {
  queue_.add("a");
  queue_.add("b");
  queue_.add_after("c", seconds(1));
  EXPECT_EQ(queue_.try_get(), Key("a"));
  queue_.add("a");
  queue_.shut_down();
  queue_.add("d");
  queue_.add_after("e", seconds(0));
  clock_.pass(seconds(10));
  const std::stop_source never;
  EXPECT_EQ(queue_.get(never.get_token()), Key("b"));
  queue_.done("a");  // it was added again before the end
  EXPECT_EQ(queue_.get(never.get_token()), Key("a"));
  EXPECT_EQ(queue_.get(never.get_token()), Key());
}

TEST(WorkQueueThreads, GetWaitsForAKeyForADelayForTheEndAndForAStop) {
  WorkQueue queue({});
  std::stop_source stop;
  Key got;
  const auto waiting = [&] { return std::thread([&] { got = queue.get(stop.get_token()); }); };
  std::thread for_a_key = waiting();
  queue.add("a");
  for_a_key.join();
  EXPECT_EQ(got, Key("a"));
  std::thread for_a_delay = waiting();
  queue.add_after("far", std::chrono::hours(1));
  queue.add_after("near", milliseconds(1));
  for_a_delay.join();
  EXPECT_EQ(got, Key("near"));
  std::thread for_a_stop = waiting();
  stop.request_stop();
  for_a_stop.join();
  EXPECT_EQ(got, Key());
  stop = std::stop_source();
  std::thread for_the_end = waiting();
  queue.shut_down();
  for_the_end.join();
  EXPECT_EQ(got, Key());
}

// Delays that come while one worker watches an earlier one: another must watch when that one goes to work.
TEST(WorkQueueThreads, NoDelayIsForgottenWhileAWorkerIsBusy) {
  WorkQueue queue({});
  const std::stop_source never;
  std::atomic<int> taken = 0;
  testing::Latch release("the second key is taken while the first is worked on");
  const auto work = [&] {
    while (const Key key = queue.get(never.get_token())) {
      ++taken;
      if (*key == "first") {
        release.wait();
      }
      queue.done(*key);
    }
  };
  std::thread one(work);
  std::thread other(work);
  queue.add_after("first", milliseconds(2));
  queue.add_after("second", milliseconds(4));
  EXPECT_TRUE(eventually(
      "both keys are taken", [&] { return taken.load(); }, 2));
  release.open();
  queue.shut_down();
  one.join();
  other.join();
}

TEST(WorkQueueThreads, DrainWaitsForWhatIsBeingWorkedOn) {
  WorkQueue queue({});
  std::stop_source stop;
  queue.add("a");
  queue.add_after("later", std::chrono::hours(1));
  ASSERT_EQ(queue.try_get(), Key("a"));
  std::atomic<bool> drained = false;
  std::thread drain([&] { drained = queue.drain(stop.get_token()); });
  EXPECT_TRUE(eventually("the delayed key is dropped", [&] { return !queue.next_due(); }));
  EXPECT_FALSE(drained);
  queue.done("a");
  drain.join();
  EXPECT_TRUE(drained);
  queue.add("b");
  EXPECT_EQ(queue.try_get(), Key());

  WorkQueue stuck({});
  stuck.add("a");
  ASSERT_EQ(stuck.try_get(), Key("a"));
  stop.request_stop();
  EXPECT_FALSE(stuck.drain(stop.get_token()));
}

// Several workers and several producers: no key is worked on twice at once, and each is worked on after it
// was last added.
TEST(WorkQueueThreads, NoKeyIsLostOrGivenTwiceAtOnce) {
  constexpr int kKeys = 7;
  constexpr int kAdds = 4000;
  WorkQueue queue({.retries = {.initial = std::chrono::microseconds(1), .per_second = 0}});
  std::array<std::atomic<int>, kKeys> wanted{};  // version of each key
  std::array<std::atomic<int>, kKeys> seen{};
  std::array<std::atomic<int>, kKeys> workers_on{};
  std::atomic<bool> twice = false;
  const std::stop_source never;
  const auto work = [&] {
    while (const Key key = queue.get(never.get_token())) {
      const auto index = static_cast<std::size_t>(std::stoi(*key));
      twice = twice || ++workers_on.at(index) != 1;
      seen.at(index) = wanted.at(index).load();
      --workers_on.at(index);
      queue.done(*key);
    }
  };
  const auto produce = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < kAdds; ++i) {
      const auto index = random() % kKeys;
      ++wanted.at(index);
      const std::string key = std::to_string(index);
      switch (random() % 3) {
        case 0: queue.add(key); break;
        case 1: queue.add_after(key, std::chrono::microseconds(random() % 50)); break;
        default: queue.add_rate_limited(key); queue.forget(key);
      }
    }
  };
  std::vector<std::thread> workers;
  for (int i = 0; i < 4; ++i) {
    workers.emplace_back(work);
  }
  std::vector<std::thread> producers;
  for (unsigned i = 0; i < 3; ++i) {
    producers.emplace_back(produce, i);
  }
  for (std::thread& producer : producers) {
    producer.join();
  }
  for (std::size_t i = 0; i < kKeys; ++i) {
    EXPECT_TRUE(eventually(
        "the last version is worked on", [&] { return seen.at(i).load(); }, wanted.at(i).load()));
  }
  queue.shut_down();
  for (std::thread& worker : workers) {
    worker.join();
  }
  EXPECT_FALSE(twice);
}

class Recorder : public QueueObserver {
 public:
  void depth(std::size_t keys) override { depths.push_back(keys); }
  void added() override { ++adds; }
  void waited(nanoseconds time) override { waits.push_back(time); }
  void worked(nanoseconds time) override { works.push_back(time); }
  void retried() override { ++retries; }

  std::vector<std::size_t> depths;
  std::vector<nanoseconds> waits;
  std::vector<nanoseconds> works;
  int adds = 0;
  int retries = 0;
};

TEST(WorkQueueMetrics, SayWhatClientGosSay) {
  VirtualClock clock;
  Recorder recorder;
  WorkQueue queue({.clock = &clock, .observer = &recorder});
  queue.add("a");
  queue.add("a");
  queue.add_after("b", seconds(2));
  EXPECT_EQ(recorder.adds, 1);
  clock.pass(seconds(3));
  EXPECT_EQ(queue.size(), 2U);
  EXPECT_EQ(recorder.adds, 2);
  EXPECT_EQ(recorder.retries, 1);
  EXPECT_EQ(queue.try_get(), Key("a"));
  EXPECT_EQ(queue.try_get(), Key("b"));
  EXPECT_THAT(recorder.waits, ElementsAre(seconds(3), seconds(1)));
  clock.pass(seconds(4));
  queue.done("a");
  clock.pass(seconds(1));
  EXPECT_EQ(queue.unfinished().longest, seconds(5));
  EXPECT_EQ(queue.unfinished().total, seconds(5));
  queue.done("b");
  EXPECT_THAT(recorder.works, ElementsAre(seconds(4), seconds(5)));
  EXPECT_THAT(recorder.depths, ElementsAre(1U, 2U, 1U, 0U));
  EXPECT_EQ(queue.unfinished().total, seconds(0));
}

// All workers of the operator stood still, and readiness did not tell.
TEST(WorkQueue, TellsHowLongNothingWasDone) {
  VirtualClock clock;
  WorkQueue queue({.clock = &clock});
  EXPECT_EQ(queue.stalled_for(), seconds(0));
  queue.add("stuck");
  queue.add("quick");
  clock.pass(seconds(60));
  EXPECT_EQ(queue.stalled_for(), seconds(0));  // nobody has begun
  queue.try_get();
  clock.pass(seconds(5));
  EXPECT_EQ(queue.stalled_for(), seconds(5));
  queue.try_get();
  clock.pass(seconds(1));
  EXPECT_EQ(queue.stalled_for(), seconds(6));
  queue.done("quick");
  EXPECT_EQ(queue.stalled_for(), seconds(0));
  clock.pass(seconds(7));
  EXPECT_EQ(queue.stalled_for(), seconds(7));
  queue.done("stuck");
  EXPECT_EQ(queue.stalled_for(), seconds(0));
}

// client-go's queue as its sources tell it, in the plainest way: what the simulation holds ours to. Time goes
// from event to event, as its waiting loop does.
class Model {
 public:
  void pass_to(nanoseconds time) {
    while (true) {
      auto first = waiting_.end();
      for (auto each = waiting_.begin(); each != waiting_.end(); ++each) {
        if (each->due <= time && (first == waiting_.end() || each->due < first->due)) {
          first = each;
        }
      }
      if (first == waiting_.end()) {
        break;
      }
      const std::string key = first->key;
      waiting_.erase(first);
      add(key);
    }
    now_ = time;
  }
  void add(const std::string& key) {
    if (ended_ || dirty_.contains(key)) {
      return;
    }
    dirty_.insert(key);
    if (!processing_.contains(key)) {
      queue_.push_back(key);
    }
  }
  void add_after(const std::string& key, nanoseconds delay) {
    if (ended_) {
      return;
    }
    if (delay <= nanoseconds(0)) {
      add(key);
      return;
    }
    for (Waiting& known : waiting_) {
      if (known.key == key) {
        known.due = std::min(known.due, now_ + delay);
        return;
      }
    }
    waiting_.push_back({key, now_ + delay});
  }
  void add_rate_limited(const std::string& key) {
    const double own = 5e6 * std::pow(2.0, failures_[key]++);
    add_after(key, nanoseconds(static_cast<std::int64_t>(std::min(own, 1000e9))));
  }
  void forget(const std::string& key) { failures_.erase(key); }
  Key get() {
    if (queue_.empty()) {
      return std::nullopt;
    }
    std::string key = queue_.front();
    queue_.pop_front();
    processing_.insert(key);
    dirty_.erase(key);
    return key;
  }
  void done(const std::string& key) {
    processing_.erase(key);
    if (dirty_.contains(key)) {
      queue_.push_back(key);
    }
  }
  void shut_down() {
    ended_ = true;
    waiting_.clear();
  }

 private:
  struct Waiting {
    std::string key;
    nanoseconds due;
  };
  nanoseconds now_{};
  std::deque<std::string> queue_;
  std::set<std::string> dirty_;
  std::set<std::string> processing_;
  std::vector<Waiting> waiting_;  // in the order they were first delayed
  std::map<std::string, int> failures_;
  bool ended_ = false;
};

TEST(WorkQueueSimulation, IsClientGosOnTenThousandSeeds) {
  for (int seed = 0; seed < plimsoll::testing::random_cases(10'000); ++seed) {
    std::mt19937 random(seed);
    VirtualClock clock;
    WorkQueue queue({.retries = {.per_second = 0}, .clock = &clock});
    Model model;
    std::vector<std::string> held;
    nanoseconds now{};
    for (int step = 0; step < 120; ++step) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", step " + std::to_string(step));
      const std::string key(1, static_cast<char>('a' + random() % 6));
      const nanoseconds delay = milliseconds(static_cast<int>(random() % 40) - 4);
      switch (random() % 16) {
        case 0:
        case 1:
        case 2: queue.add(key), model.add(key); break;
        case 3:
        case 4: queue.add_after(key, delay), model.add_after(key, delay); break;
        case 5: queue.add_rate_limited(key), model.add_rate_limited(key); break;
        case 6: queue.forget(key), model.forget(key); break;
        case 7:
        case 8:
        case 9:
        case 10: {
          const Key expected = model.get();
          ASSERT_EQ(queue.try_get(), expected);
          if (expected) {
            ASSERT_EQ(std::count(held.begin(), held.end(), *expected), 0) << "given twice";
            held.push_back(*expected);
          }
          break;
        }
        case 11:
        case 12:
        case 13:
          if (!held.empty()) {
            const auto which = held.begin() + static_cast<std::ptrdiff_t>(random() % held.size());
            queue.done(*which), model.done(*which);
            held.erase(which);
          }
          break;
        default:
          if (random() % 200 == 0) {
            queue.shut_down(), model.shut_down();
          } else {
            const nanoseconds step_time = milliseconds(random() % 30);
            clock.pass(step_time);
            model.pass_to(now += step_time);
          }
      }
    }
    // All that was ever added comes out in the end.
    clock.pass(std::chrono::hours(1));
    model.pass_to(now + std::chrono::hours(1));
    for (const std::string& key : held) {
      queue.done(key), model.done(key);
    }
    Key expected;
    do {
      expected = model.get();
      ASSERT_EQ(queue.try_get(), expected) << "seed " << seed;
    } while (expected);
  }
}

TEST(WorkQueueFairness, FourSlowJobsOfOneNamespaceDoNotOccupyAllWorkers) {
  VirtualClock clock;
  WorkQueue queue({.workers = 4, .clock = &clock});
  for (int i = 0; i < 8; ++i) {
    queue.add("greedy/" + std::to_string(i));
  }
  EXPECT_EQ(queue.try_get(), Key("greedy/0"));
  EXPECT_EQ(queue.try_get(), Key("greedy/1"));
  EXPECT_EQ(queue.try_get(), Key("greedy/2"));
  EXPECT_EQ(queue.try_get(), std::nullopt) << "the last worker is for another namespace";
  EXPECT_EQ(queue.size(), 5U);
  queue.add("modest/a");
  EXPECT_EQ(queue.try_get(), Key("modest/a"));
  queue.done("greedy/1");
  EXPECT_EQ(queue.try_get(), Key("greedy/3"));
  queue.shut_down();  // then workers get what is left
  EXPECT_EQ(queue.try_get(), Key("greedy/4"));
}

TEST(WorkQueueFairness, NamespacesTakeTurns) {
  VirtualClock clock;
  WorkQueue queue({.clock = &clock});
  for (const char* key : {"a/1", "a/2", "a/3", "b/1", "c/1", "b/2"}) {
    queue.add(key);
  }
  std::vector<std::string> order;
  while (const Key key = queue.try_get()) {
    order.push_back(*key);
  }
  EXPECT_THAT(order, ElementsAre("a/1", "b/1", "c/1", "a/2", "b/2", "a/3"));
}

TEST(WorkQueueFairness, AWaitingWorkerIsWokenWhenItsNamespaceMayGoOn) {
  WorkQueue queue({.workers = 2});
  queue.add("a/1");
  queue.add("a/2");
  ASSERT_EQ(queue.try_get(), Key("a/1"));
  Key got;
  std::jthread worker([&](const std::stop_token& stop) { got = queue.get(stop); });
  queue.done("a/1");
  worker.join();
  EXPECT_EQ(got, Key("a/2"));
}

// Whatever is added and however long workers take: nothing is lost or given twice, a namespace's keys come in
// their order, one worker is free of each namespace, and none waits for more than a turn of each other.
TEST(WorkQueueSimulation, IsFairToNamespacesOnTwoThousandSeeds) {
  constexpr int kWorkers = 3;
  for (int seed = 0; seed < plimsoll::testing::random_cases(2'000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    VirtualClock clock;
    WorkQueue queue({.workers = kWorkers, .clock = &clock});
    std::map<std::string, std::deque<std::string>> waiting;
    std::map<std::string, int> others_since;  // turns of others while a namespace might have had one
    std::vector<std::string> held;
    int count = 0;
    const auto namespace_of = [](const std::string& key) { return key.substr(0, key.find('/')); };
    const auto held_by = [&](const std::string& name) {
      return std::count_if(held.begin(), held.end(),
                           [&](const auto& key) { return namespace_of(key) == name; });
    };
    for (int step = 0; step < 200; ++step) {
      const std::string name(1, static_cast<char>('a' + random() % 4));
      const std::size_t choice = random() % 10;
      if (choice < 5) {
        const std::string key = name + "/" + std::to_string(count++);
        queue.add(key);
        waiting[name].push_back(key);
      } else if (choice < 8) {
        if (held.size() < kWorkers) {
          const Key key = queue.try_get();
          if (!key) {
            for (const auto& [each, keys] : waiting) {
              ASSERT_TRUE(keys.empty() || held_by(each) >= kWorkers - 1) << each << " was not served";
            }
            continue;
          }
          const std::string of = namespace_of(*key);
          ASSERT_EQ(*key, waiting[of].front());
          waiting[of].pop_front();
          held.push_back(*key);
          ASSERT_LE(held_by(of), kWorkers - 1);
          others_since[of] = 0;
          for (const auto& [each, keys] : waiting) {
            if (each != of && !keys.empty() && held_by(each) < kWorkers - 1) {
              ASSERT_LE(++others_since[each], 4 * kWorkers) << each << " starves";
            }
          }
        }
      } else if (!held.empty()) {
        const auto which = held.begin() + static_cast<std::ptrdiff_t>(random() % held.size());
        queue.done(*which);
        held.erase(which);
      }
    }
    for (const std::string& key : held) {
      queue.done(key);
    }
    queue.shut_down();
    std::size_t left = 0;
    for (const auto& [name, keys] : waiting) {
      left += keys.size();
    }
    std::size_t given = 0;
    while (queue.try_get()) {
      ++given;
    }
    ASSERT_EQ(given, left);
  }
}

}  // namespace
}  // namespace plimsoll::kube
