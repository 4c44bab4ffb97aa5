#include "base/backoff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tests/kube/virtual_clock.h"

namespace plimsoll {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using testing::VirtualClock;

TEST(ExponentialDelay, IsBoundedWhateverItIsGiven) {
  constexpr std::int64_t kMany = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(exponential_delay(seconds(10), seconds(360), 0), seconds(10));
  EXPECT_EQ(exponential_delay(seconds(10), seconds(360), 5), seconds(320));
  EXPECT_EQ(exponential_delay(seconds(10), seconds(360), 6), seconds(360));
  EXPECT_EQ(exponential_delay(seconds(10), nanoseconds::max(), kMany), nanoseconds::max());
  EXPECT_EQ(exponential_delay(seconds(10), seconds(1), kMany), seconds(1));
  EXPECT_EQ(exponential_delay(seconds(0), seconds(1), kMany), seconds(0));
  EXPECT_EQ(exponential_delay(seconds(10), seconds(360), -1), seconds(10));
}

TEST(WithJitter, AddsAShareOfTheJitter) {
  EXPECT_EQ(with_jitter(seconds(10), 0.5, 0), seconds(10));
  EXPECT_EQ(with_jitter(seconds(10), 0.5, 0.5), seconds(12));
  EXPECT_EQ(with_jitter(milliseconds(100), 1, 0.25), milliseconds(125));
}

TEST(Backoff, DoublesToTheCapAndStartsOverAfterAReset) {
  Backoff backoff({milliseconds(100), milliseconds(1'000), 0}, 1);
  std::vector<int> delays;
  for (int i = 0; i < 6; ++i) {
    delays.push_back(static_cast<int>(backoff.next().count()));
  }
  EXPECT_THAT(delays, ElementsAre(100, 200, 400, 800, 1000, 1000));
  backoff.reset();
  EXPECT_EQ(backoff.next(), milliseconds(100));
}

TEST(Backoff, SpreadsDelaysByItsJitter) {
  Backoff backoff({milliseconds(1'000), milliseconds(1'000), 0.5}, 7);
  for (int i = 0; i < 1'000; ++i) {
    const milliseconds delay = backoff.next();
    ASSERT_GE(delay, milliseconds(1'000));
    ASSERT_LE(delay, milliseconds(1'500));
  }
}

TEST(RetryDelays, GrowToAThousandSeconds) {
  const VirtualClock clock;
  RetryDelays delays({.per_second = 0}, clock);
  nanoseconds last{};
  for (int i = 0; i < 200; ++i) {
    last = delays.next("a");
  }
  EXPECT_EQ(last, seconds(1000));
  EXPECT_EQ(delays.next("b"), milliseconds(5));
}

// 100 at once, then 10 a second for all keys together: golang.org/x/time/rate.
TEST(RetryDelays, ShareABucketOfTokens) {
  VirtualClock clock;
  RetryDelays delays({}, clock);
  int keys = 0;
  const auto of_a_new_key = [&] { return delays.next(std::to_string(keys++)); };
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(of_a_new_key(), milliseconds(5)) << i;
  }
  EXPECT_EQ(of_a_new_key(), milliseconds(100));
  EXPECT_EQ(of_a_new_key(), milliseconds(200));
  clock.pass(milliseconds(150));  // half of the three that are owed, one of which is this
  EXPECT_NEAR(static_cast<double>(of_a_new_key().count()), 150e6, 1e3);
  clock.pass(std::chrono::hours(1));
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(of_a_new_key(), milliseconds(5)) << i;
  }
  EXPECT_EQ(of_a_new_key(), milliseconds(100));
}

TEST(RetryDelays, FailuresOfOneNamespaceDoNotSlowTheRetriesOfOthers) {
  VirtualClock clock;
  RetryDelays delays({}, clock);
  for (int i = 0; i < 10'000; ++i) {
    delays.next("noisy/" + std::to_string(i));
  }
  EXPECT_EQ(delays.next("quiet/a"), milliseconds(5));
  EXPECT_GT(delays.next("noisy/a"), seconds(900));
  delays.forget("quiet/a");
  delays.forget("quiet/a");
  EXPECT_EQ(delays.failures("quiet/a"), 0);
  EXPECT_EQ(delays.next("quiet/a"), milliseconds(5));
}

TEST(TokenBucket, IsNotTakenFromWhenItIsEmpty) {
  VirtualClock clock;
  TokenBucket bucket(0.5, 2, clock);
  EXPECT_TRUE(bucket.try_take());
  EXPECT_TRUE(bucket.try_take());
  EXPECT_FALSE(bucket.try_take());
  clock.pass(milliseconds(1999));
  EXPECT_FALSE(bucket.try_take());
  clock.pass(milliseconds(1));
  EXPECT_TRUE(bucket.try_take());
  EXPECT_FALSE(bucket.try_take());
}

}  // namespace
}  // namespace plimsoll
