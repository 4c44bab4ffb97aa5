#include "base/memory_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/testing/eventually.h"

namespace plimsoll {
namespace {

using namespace std::chrono_literals;

MemoryPool::Time in(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

TEST(MemoryPool, GivesBackWhatGoesOutOfScope) {
  MemoryPool pool(64_MiB);
  {
    Result<MemoryPool::Reservation> one = pool.reserve(40_MiB, in(0ms));
    ASSERT_TRUE(one.ok());
    EXPECT_EQ(one->bytes(), 40_MiB);
    MemoryPool::Reservation moved = *std::move(one);
    EXPECT_EQ(pool.stats().reserved, 40_MiB);
    MemoryPool::Reservation other;
    other = std::move(moved);
    EXPECT_EQ(pool.stats().reserved, 40_MiB);
  }
  EXPECT_EQ(pool.stats().reserved, Bytes());
  EXPECT_EQ(pool.stats().most_reserved, 40_MiB);
}

TEST(MemoryPool, RefusesWhatWillNeverFitAndWhatDoesNotFitInTime) {
  MemoryPool pool(64_MiB);
  EXPECT_EQ(pool.reserve(60_MiB, in(1h)).error().code, ErrorCode::kTooLarge);
  const Result<MemoryPool::Reservation> held = pool.reserve(pool.largest(), in(0ms));
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(pool.reserve(8_MiB, in(20ms)).error().code, ErrorCode::kTooManyRequests);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(pool.reserve(8_MiB, in(1h), stop.get_token()).error().code, ErrorCode::kCancelled);
  EXPECT_EQ(pool.stats().rejected, 3U);
}

TEST(MemoryPool, SmallOnesDoNotWaitBehindLargeOnes) {
  MemoryPool pool(64_MiB);
  const Result<MemoryPool::Reservation> held = pool.reserve(pool.largest(), in(0ms));
  std::atomic<bool> served = false;
  std::jthread large([&] { served = pool.reserve(32_MiB, in(1h)).ok(); });
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(pool.reserve(1_MiB, in(0ms)).ok());
  }
  EXPECT_FALSE(served);
  const_cast<MemoryPool::Reservation&>(*held).release();
  large.join();
  EXPECT_TRUE(served);
}

TEST(MemoryPool, LargeOnesAreServedInTheirOrder) {
  MemoryPool pool(64_MiB);
  Result<MemoryPool::Reservation> held = pool.reserve(20_MiB, in(0ms));
  std::atomic<int> served = 0;
  std::atomic<int> larger_was = 0;
  std::jthread larger([&] {
    const Result<MemoryPool::Reservation> mine = pool.reserve(40_MiB, in(1h));
    larger_was = ++served;
  });
  EXPECT_TRUE(testing::eventually("the larger one stands in line",
                                  [&] { return !pool.reserve(20_MiB, in(1ms)).ok(); }));
  std::jthread later([&] {
    const Result<MemoryPool::Reservation> mine = pool.reserve(20_MiB, in(1h));
    ++served;
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(served, 0);  // there is room for the later one, but it is not its turn
  held->release();
  larger.join();
  later.join();
  EXPECT_EQ(larger_was, 1);
}

TEST(MemoryPool, NeverGivesMoreThanItHas) {
  MemoryPool pool(64_MiB);
  std::atomic<std::int64_t> held = 0;
  std::atomic<bool> too_much = false;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 200; ++i) {
          const Bytes size = i % 3 == 0 ? Bytes{600'000} : Bytes{1'000'000 * (1 + (t * 7 + i) % 40)};
          const Result<MemoryPool::Reservation> mine = pool.reserve(size, in(1h));
          too_much = too_much || (held += size.count) > pool.stats().limit.count;
          held -= size.count;
        }
      });
    }
  }
  EXPECT_FALSE(too_much);
  EXPECT_EQ(pool.stats().reserved, Bytes());
}

}  // namespace
}  // namespace plimsoll
