#include "estimator/allocator/free_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>

#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

using Entry = FreeBlocks::Entry;
using ::testing::ElementsAre;

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();

FreeBlocks holding(const std::vector<Entry>& entries) {
  FreeBlocks free;
  for (const Entry& entry : entries) {
    free.insert(entry.size, entry.address, entry.block);
  }
  return free;
}

TEST(FreeBlocks, TheSmallestBlockThatFitsIsTaken) {
  FreeBlocks free = holding({{2048, 0, 1}, {1024, 8192, 2}, {4096, 16384, 3}});
  EXPECT_EQ(free.take(1025, kNoLimit), 1);
  EXPECT_EQ(free.take(1025, kNoLimit), 3) << "block 1 is no longer free";
  EXPECT_EQ(free.take(1025, kNoLimit), -1);
  EXPECT_THAT(free.all(), ElementsAre(Entry{1024, 8192, 2}));
}

TEST(FreeBlocks, AmongEqualSizesTheLowestAddressIsTaken) {
  FreeBlocks free = holding({{512, 3000, 1}, {512, 1000, 2}, {512, 2000, 3}});
  EXPECT_EQ(free.take(1, kNoLimit), 2);
  EXPECT_EQ(free.take(1, kNoLimit), 3);
  EXPECT_EQ(free.take(1, kNoLimit), 1);
}

TEST(FreeBlocks, ABlockAtTheLimitIsTooLargeAndStays) {
  FreeBlocks free = holding({{4096, 0, 7}});
  EXPECT_EQ(free.take(512, 4096), -1);
  EXPECT_THAT(free.all(), ElementsAre(Entry{4096, 0, 7}));
  EXPECT_EQ(free.take(512, 4097), 7);
  EXPECT_TRUE(free.all().empty());
}

TEST(FreeBlocks, AnEmptyPoolHasNoBlock) {
  FreeBlocks free;
  EXPECT_EQ(free.take(0, kNoLimit), -1);
  EXPECT_EQ(free.at_least(0), FreeBlocks::end());
  EXPECT_TRUE(free.all().empty());
}

TEST(FreeBlocks, NextGoesBySizeThenByAddress) {
  const FreeBlocks free = holding({{512, 900, 1}, {2048, 0, 2}, {512, 100, 3}});
  Entry each = free.at_least(1);
  EXPECT_EQ(each, (Entry{512, 100, 3}));
  each = free.next(each);
  EXPECT_EQ(each, (Entry{512, 900, 1}));
  each = free.next(each);
  EXPECT_EQ(each, (Entry{2048, 0, 2}));
  EXPECT_EQ(free.next(each), FreeBlocks::end());
}

// Searches skip the bin of a size that has no blocks left until it is removed; the size may return after that.
TEST(FreeBlocks, ASizeWithManyBlocksMayEmptyAndReturn) {
  FreeBlocks free = holding({{1 << 20, 0, 1000}});
  for (int round = 0; round < 3; ++round) {
    for (std::int32_t i = 0; i < 500; ++i) {
      free.insert(512, 1'000'000 - i, i);
    }
    for (std::int32_t i = 500; i-- > 0;) {
      ASSERT_EQ(free.take(512, 513), i) << "the lowest address";
    }
    for (int search = 0; search < 100; ++search) {
      ASSERT_EQ(free.at_least(512).block, 1000);
      ASSERT_EQ(free.take(512, kNoLimit), 1000);
      free.insert(1 << 20, 0, 1000);
    }
  }
}

// One or two of each size around every power of two, so that neighbours are of one class or of two.
TEST(FreeBlocks, EverySizeIsFoundFromTheOneBelow) {
  FreeBlocks free;
  std::set<std::int64_t> sizes;
  for (int power = 0; power < 60; ++power) {
    for (const std::int64_t size : {(std::int64_t{1} << power) - 1, std::int64_t{1} << power,
                                    (std::int64_t{1} << power) + 1, (std::int64_t{9} << power) / 8}) {
      if (sizes.insert(size).second) {
        free.insert(size, size + 5, 1);
        free.insert(size, size + 3, 2);
      }
    }
  }
  std::int64_t last = -1;
  for (const std::int64_t size : sizes) {
    EXPECT_EQ(free.at_least(last + 1), (Entry{size, size + 3, 2}));
    EXPECT_EQ(free.next({size, size + 3, 2}), (Entry{size, size + 5, 1}));
    EXPECT_EQ(free.take(last + 1, size), -1) << "at the limit";
    EXPECT_EQ(free.take(last + 1, kNoLimit), 2);
    free.erase(size, size + 5, 1);
    last = size;
  }
  EXPECT_TRUE(free.all().empty());
}

// A class of many blocks, of which all but a few go again.
TEST(FreeBlocks, ManyBlocksOfOneClassMayComeAndGo) {
  const unsigned seed = plimsoll::testing::random_seed();
  std::mt19937_64 random(seed);
  FreeBlocks blocks;
  std::set<Entry> expected;
  for (int round = 0; round < 4; ++round) {
    while (expected.size() < 300) {
      const Entry entry{static_cast<std::int64_t>(1024 + random() % 100),
                        static_cast<std::int64_t>(random() % 10'000), 0};
      if (expected.insert(entry).second) {
        blocks.insert(entry.size, entry.address, entry.block);
      }
    }
    while (expected.size() > static_cast<std::size_t>(round)) {
      const auto size = static_cast<std::int64_t>(1000 + random() % 130);
      const auto wanted = expected.lower_bound({size, -1, -1});
      ASSERT_EQ(blocks.take(size, kNoLimit), wanted == expected.end() ? -1 : 0) << "seed " << seed;
      if (wanted != expected.end()) {
        expected.erase(wanted);
      }
    }
    const std::vector<Entry> all = blocks.all();
    ASSERT_TRUE(std::equal(all.begin(), all.end(), expected.begin(), expected.end())) << "seed " << seed;
  }
}

// FreeBlocks compared with an ordered set.
TEST(FreeBlocks, KeepsTheOrder) {
  const unsigned seed = plimsoll::testing::random_seed();
  std::mt19937_64 random(seed);
  FreeBlocks blocks;
  std::set<Entry> expected;
  for (int i = 0; i < 20'000; ++i) {
    const Entry entry{static_cast<std::int64_t>(random() % 200), static_cast<std::int64_t>(random() % 50), 0};
    if (expected.insert(entry).second) {
      blocks.insert(entry.size, entry.address, entry.block);
    } else if (random() % 2 == 0) {
      expected.erase(entry);
      blocks.erase(entry.size, entry.address, entry.block);
    }
    const auto size = static_cast<std::int64_t>(random() % 210);
    const auto found = blocks.at_least(size);
    const auto wanted = expected.lower_bound({size, -1, -1});
    ASSERT_EQ(found == blocks.end(), wanted == expected.end()) << "seed " << seed;
    if (wanted != expected.end()) {
      ASSERT_EQ(found, *wanted) << "seed " << seed;
      const auto after = blocks.next(found);
      const auto wanted_after = std::next(wanted);
      ASSERT_EQ(after == blocks.end(), wanted_after == expected.end()) << "seed " << seed;
      if (wanted_after != expected.end()) {
        ASSERT_EQ(after, *wanted_after) << "seed " << seed;
      }
    }
  }
  const std::vector<Entry> all = blocks.all();
  EXPECT_TRUE(std::equal(all.begin(), all.end(), expected.begin(), expected.end())) << "seed " << seed;
}

// Many blocks of few sizes, as in training, are taken and inserted.
TEST(FreeBlocks, TakesTheLowestOfTheSmallestThatFits) {
  const unsigned seed = plimsoll::testing::random_seed();
  std::mt19937_64 random(seed);
  FreeBlocks blocks;
  std::set<Entry> expected;
  for (int i = 0; i < 40'000; ++i) {
    const auto size = static_cast<std::int64_t>(512 * (1 + random() % 6));
    if (i % 20'000 < 12'000 ? random() % 3 != 0 : random() % 3 == 0) {
      const Entry entry{size, static_cast<std::int64_t>(random() % 100'000), 7};
      if (expected.insert(entry).second) {
        blocks.insert(entry.size, entry.address, entry.block);
      }
    } else if (random() % 4 == 0 && !expected.empty()) {
      const auto next = expected.lower_bound({size, static_cast<std::int64_t>(random() % 100'000), 0});
      const Entry gone = next == expected.end() ? *expected.begin() : *next;
      blocks.erase(gone.size, gone.address, gone.block);
      expected.erase(gone);
    } else {
      const std::int64_t limit = size + static_cast<std::int64_t>(512 * (random() % 3));
      const auto wanted = expected.lower_bound({size, -1, -1});
      const bool any = wanted != expected.end() && wanted->size < limit;
      ASSERT_EQ(blocks.take(size, limit), any ? 7 : -1) << "seed " << seed;
      if (any) {
        expected.erase(wanted);
      }
    }
    ASSERT_EQ(blocks.at_least(0) == FreeBlocks::end(), expected.empty()) << "seed " << seed;
  }
  const std::vector<Entry> all = blocks.all();
  EXPECT_TRUE(std::equal(all.begin(), all.end(), expected.begin(), expected.end())) << "seed " << seed;
}

}  // namespace
}  // namespace plimsoll::estimator
