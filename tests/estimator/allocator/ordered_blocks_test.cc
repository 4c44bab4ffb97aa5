#include "estimator/allocator/ordered_blocks.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>

#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

using Entry = OrderedBlocks::Entry;

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

TEST(OrderedBlocks, TheSmallestBlockThatFitsIsTaken) {
  OrderedBlocks blocks;
  EXPECT_TRUE(blocks.empty());
  EXPECT_EQ(blocks.take(0, kNoLimit), -1);
  for (const Entry& entry : {Entry{2048, 0, 1}, Entry{1024, 8192, 2}, Entry{4096, 16384, 3}}) {
    blocks.insert(entry);
  }
  EXPECT_EQ(blocks.take(1025, 2048), -1) << "at the limit";
  EXPECT_EQ(blocks.take(1025, kNoLimit), 1);
  EXPECT_EQ(blocks.from({1025, 0, -1}), (Entry{4096, 16384, 3}));
  blocks.erase({4096, 16384, 3});
  EXPECT_EQ(blocks.from({1025, 0, -1}), OrderedBlocks::end());
  EXPECT_FALSE(blocks.empty());
}

// Searches skip the bin of a size that has no blocks left until it is removed; the size may return after that.
TEST(OrderedBlocks, ASizeWithManyBlocksMayEmptyAndReturn) {
  OrderedBlocks blocks;
  blocks.insert({1 << 20, 0, 1000});
  for (int round = 0; round < 3; ++round) {
    for (std::int32_t i = 0; i < 500; ++i) {
      blocks.insert({512, 1'000'000 - i, i});
    }
    for (std::int32_t i = 500; i-- > 0;) {
      ASSERT_EQ(blocks.take(512, 513), i) << "the lowest address";
    }
    for (int search = 0; search < 100; ++search) {
      ASSERT_EQ(blocks.take(512, kNoLimit), 1000);
      blocks.insert({1 << 20, 0, 1000});
    }
  }
}

// Compared with an ordered set.
TEST(OrderedBlocks, KeepsTheOrder) {
  const unsigned seed = plimsoll::testing::random_seed();
  std::mt19937_64 random(seed);
  OrderedBlocks blocks;
  std::set<Entry> expected;
  for (int i = 0; i < 20'000; ++i) {
    const Entry entry{static_cast<std::int64_t>(random() % 200), static_cast<std::int64_t>(random() % 50), 0};
    if (expected.insert(entry).second) {
      blocks.insert(entry);
    } else if (random() % 2 == 0) {
      expected.erase(entry);
      blocks.erase(entry);
    }
    const Entry least{static_cast<std::int64_t>(random() % 210), static_cast<std::int64_t>(random() % 50),
                      -1};
    const auto wanted = expected.lower_bound(least);
    ASSERT_EQ(blocks.from(least), wanted == expected.end() ? OrderedBlocks::end() : *wanted)
        << "seed " << seed;
    ASSERT_EQ(blocks.empty(), expected.empty()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace plimsoll::estimator
