#include "estimator/sharder/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <set>
#include <string>

#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
constexpr std::size_t kTimeAndMemory = 2;
constexpr Amount kUnlimited = {kNoLimit, kNoLimit, kNoLimit, kNoLimit};

Piece piece(double ms, double bytes, std::int32_t table = 0, std::int32_t zone = -1) {
  return {.amount = {ms, bytes, 0, 0}, .table = table, .part = 0, .zone = zone};
}

std::vector<std::int32_t> tables_on(const Placement& placement, std::size_t rank) {
  std::vector<std::int32_t> tables;
  for (const Piece& each : placement.pieces()[rank]) {
    tables.push_back(each.table);
  }
  std::sort(tables.begin(), tables.end());
  return tables;
}

TEST(Placement, AddsToOneRankOrToAll) {
  Placement placement(3, kTimeAndMemory);
  placement.add_everywhere({1, 10, 0, 0});
  placement.add(1, {2, 0, 0, 0});
  placement.add(2, {2, 5, 0, 0});
  EXPECT_EQ(placement.load(0, Measure::kTime), 1);
  EXPECT_EQ(placement.highest(Measure::kTime), 3);
  EXPECT_EQ(placement.fullest(Measure::kTime), 1);  // of equal ones, the lower number
  EXPECT_EQ(placement.highest(Measure::kMemory), 15);
  EXPECT_EQ(placement.fullest(Measure::kMemory), 2);
}

TEST(Placement, MeasuresThatAreNotInUseStayEmpty) {
  Placement placement(2, kTimeAndMemory);
  placement.add_everywhere({1, 1, 7, 7});
  EXPECT_EQ(placement.highest(Measure::kCompute), 0);
  EXPECT_EQ(placement.highest(Measure::kHost), 0);
}

TEST(Placement, TheLargestGoFirstEachToTheEmptiestRank) {
  // 7 to rank 0, 6 to rank 1, 5 to rank 1 (11, not 12), 4 to rank 0 (11).
  Placement placement(2, kTimeAndMemory);
  placement.place({piece(4, 0, 0), piece(5, 0, 1), piece(6, 0, 2), piece(7, 0, 3)}, {1, 1, 1, 1});
  EXPECT_EQ(tables_on(placement, 0), (std::vector<std::int32_t>{0, 3}));
  EXPECT_EQ(tables_on(placement, 1), (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(placement.load(0, Measure::kTime), 11);
  EXPECT_EQ(placement.load(1, Measure::kTime), 11);
}

TEST(Placement, TheUnitMakesMeasuresComparable) {
  // In shares of a rank: 0.5 of its memory, 0.4 of its time, 0.3 of its memory, 0.3 of its time. The third goes
  // beside the second, and the last beside the first: the highest share is 0.5 on both ranks.
  Placement placement(2, kTimeAndMemory);
  placement.place({piece(0, 500, 0), piece(4, 0, 1), piece(0, 300, 2), piece(3, 0, 3)}, {10, 1000, 1, 1});
  EXPECT_EQ(tables_on(placement, 0), (std::vector<std::int32_t>{0, 3}));
  EXPECT_EQ(tables_on(placement, 1), (std::vector<std::int32_t>{1, 2}));
}

TEST(Placement, PiecesWithAZoneGoFirstAndStayThere) {
  Placement placement(3, kTimeAndMemory);
  const std::int32_t last = placement.add_zone({2});
  placement.place({piece(9, 0, 0), piece(2, 0, 1, last), piece(3, 0, 2, last)}, {1, 1, 1, 1});
  EXPECT_EQ(tables_on(placement, 2), (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(tables_on(placement, 0), (std::vector<std::int32_t>{0}));
  placement.level(Measure::kTime, 1, kUnlimited, 100);
  EXPECT_EQ(tables_on(placement, 2), (std::vector<std::int32_t>{1, 2}));
}

// Placed by memory alone: table 0 (4 bytes) and 3 (1 byte) on rank 0, 1 (3 bytes) and 2 (2 bytes) on rank 1.
// Tables 0 and 3 take 10 ms each, the others none.
Placement all_the_time_on_one_rank() {
  Placement placement(2, kTimeAndMemory);
  placement.place({piece(10, 4, 0), piece(0, 3, 1), piece(0, 2, 2), piece(10, 1, 3)}, {1e9, 1, 1, 1});
  EXPECT_EQ(placement.load(0, Measure::kTime), 20);
  EXPECT_EQ(placement.load(0, Measure::kMemory), 5);
  return placement;
}

TEST(Placement, LevellingKeepsTheOtherLimits) {
  Placement free = all_the_time_on_one_rank();
  free.level(Measure::kTime, 10, {kNoLimit, 6, kNoLimit, kNoLimit}, 100);
  EXPECT_EQ(free.highest(Measure::kTime), 10);
  EXPECT_EQ(free.highest(Measure::kMemory), 6);  // the piece of one byte moved
  // No move or swap of a timed piece leaves 5 bytes on each rank.
  Placement full = all_the_time_on_one_rank();
  full.level(Measure::kTime, 10, {kNoLimit, 5, kNoLimit, kNoLimit}, 100);
  EXPECT_EQ(full.highest(Measure::kTime), 20);
  EXPECT_EQ(full.highest(Measure::kMemory), 5);
}

TEST(Placement, LevellingStopsAtTheTargetAndAfterItsSteps) {
  Placement reached = all_the_time_on_one_rank();
  reached.level(Measure::kTime, 20, kUnlimited, 100);
  EXPECT_EQ(reached.load(0, Measure::kTime), 20);
  Placement none = all_the_time_on_one_rank();
  none.level(Measure::kTime, 10, kUnlimited, 0);
  EXPECT_EQ(none.load(0, Measure::kTime), 20);
}

TEST(Placement, LevellingLosesNoPieceAndNeverRaisesTheHighest) {
  const std::uint64_t seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 200; ++i) {
    const std::int64_t ranks = 2 + static_cast<std::int64_t>(random() % 9);
    Placement placement(ranks, kTimeAndMemory);
    std::vector<Piece> pieces;
    const auto count = static_cast<std::int32_t>(random() % 60);
    for (std::int32_t table = 0; table < count; ++table) {
      pieces.push_back(
          piece(static_cast<double>(random() % 100), static_cast<double>(random() % 100), table));
    }
    placement.place(pieces, {100, 100, 1, 1});
    const double time = placement.highest(Measure::kTime);
    const double memory = placement.highest(Measure::kMemory);
    placement.level(Measure::kTime, 0, {kNoLimit, memory, kNoLimit, kNoLimit}, 1000);
    EXPECT_LE(placement.highest(Measure::kTime), time);
    EXPECT_LE(placement.highest(Measure::kMemory), memory);
    std::set<std::int32_t> tables;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      double ms = 0;
      for (const Piece& each : placement.pieces()[static_cast<std::size_t>(rank)]) {
        ms += each.amount[Measure::kTime];
        EXPECT_TRUE(tables.insert(each.table).second);
      }
      EXPECT_EQ(placement.load(rank, Measure::kTime), ms);
    }
    EXPECT_EQ(tables.size(), static_cast<std::size_t>(count));
  }
}

TEST(Placement, TakesMemoryAndWorkFromTheBudget) {
  Budget memory({.memory = Bytes{1000}});
  EXPECT_THROW(Placement(1000, kTimeAndMemory, &memory), BudgetExceeded);
  Budget work({.work = 10});
  Placement placement(2, kTimeAndMemory, &work);
  EXPECT_THROW(placement.place(std::vector<Piece>(100, piece(1, 1)), {1, 1, 1, 1}), BudgetExceeded);
}

}  // namespace
}  // namespace plimsoll::estimator
