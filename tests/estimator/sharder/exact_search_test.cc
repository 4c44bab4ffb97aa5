#include "estimator/sharder/exact_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/estimator/sharder_instances.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

using plimsoll::testing::random_seed;

constexpr double kAnyTime = std::numeric_limits<double>::infinity();

ShardRequest tables(std::size_t count, std::int64_t trainers) {
  ShardRequest request{.topology = {.trainers = trainers}, .budget = 1_GiB};
  for (std::size_t i = 0; i < count; ++i) {
    request.tables.push_back({.name = "t" + std::to_string(i), .rows = 1000, .dim = 16});
  }
  return request;
}

std::optional<ExactPlan> search(const ShardRequest& request, const Options& options, double milliseconds) {
  return search_all(request, options, MemoryLimits(request), milliseconds);
}

// Of the slowest rank of a plan on one node.
double slowest(const ShardRequest& request, const ExactPlan& plan) {
  std::vector<double> ms(static_cast<std::size_t>(request.topology.trainers), 0.0);
  for (std::size_t table = 0; table < plan.options.size(); ++table) {
    const Option& option = *plan.options[table];
    for (const std::int64_t place : plan.places[table]) {
      const std::int64_t width = option.ranks_per_block(CostModel(request));
      for (std::int64_t rank = place * width; rank < (place + 1) * width; ++rank) {
        ms[static_cast<std::size_t>(rank)] += option.ms;
      }
    }
  }
  return *std::max_element(ms.begin(), ms.end());
}

TEST(ExactSearch, IsForFewTablesOnFewEqualTrainers) {
  EXPECT_TRUE(is_small(tables(8, 8)));
  EXPECT_FALSE(is_small(tables(9, 8)));
  EXPECT_FALSE(is_small(tables(8, 16)));
  ShardRequest pinned = tables(2, 2);
  pinned.constraints = {{.table = 0, .ranks = {1}}};
  EXPECT_FALSE(is_small(pinned));
  ShardRequest unequal = tables(2, 2);
  unequal.budgets = {1_GiB, 2_GiB};
  EXPECT_FALSE(is_small(unequal));
}

TEST(ExactSearch, FindsTheFastestPlanThereIs) {
  std::mt19937_64 random(random_seed());
  int found = 0;
  for (int i = 0; i < 100; ++i) {
    ShardRequest request = random_request(random, {.most_tables = 3, .trainers = {2, 3, 4}});
    for (Table& table : request.tables) {
      table.dim = std::min<std::int64_t>(table.dim, 64);
    }
    SCOPED_TRACE("seed " + std::to_string(random_seed()) + ", instance " + std::to_string(i));
    const Options options(request);
    const std::optional<double> least = exhaustive_time(request);
    const std::optional<ExactPlan> plan = search(request, options, kAnyTime);
    ASSERT_EQ(plan.has_value(), least.has_value());
    if (plan) {
      ++found;
      const double ms = slowest(request, *plan);
      EXPECT_GE(ms, *least * (1 - 1e-9));
      EXPECT_LE(ms, *least * 1.002);  // gains below 0.1% are not sought
      EXPECT_FALSE(search(request, options, *least * (1 - 1e-6)).has_value()) << "none is faster";
    }
  }
  EXPECT_GT(found, 50);
}

TEST(ExactSearch, PlacesEachColumnBlock) {
  // A hot table of 64 columns on four trainers: cut until it is level.
  ShardRequest request = tables(1, 4);
  request.tables[0] = {.name = "hot", .rows = 100'000'000, .dim = 64, .lookups_per_sample = 100};
  request.budget = 8_GiB;  // of 26 GB
  const Options options(request);
  const std::optional<ExactPlan> plan = search(request, options, kAnyTime);
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->places.size(), 1U);
  const std::size_t blocks =
      plan->options[0]->everywhere() ? 1 : static_cast<std::size_t>(plan->options[0]->cuts);
  EXPECT_EQ(plan->places[0].size(), blocks);
}

TEST(ExactSearch, WhatExceedsAllTrainersHasNoPlan) {
  ShardRequest request = tables(3, 2);
  const Options options(request);
  request.budget = Bytes{70'000};  // less than two of the tables, which take 68000 and buffers
  EXPECT_FALSE(search(request, options, kAnyTime).has_value());
}

TEST(ExactSearch, StopsWhenTheBudgetOfWorkIsSpent) {
  ShardRequest request = tables(8, 8);
  const Options options(request);
  Budget budget({.work = 5});
  request.work_budget = &budget;
  EXPECT_THROW(search(request, options, kAnyTime), BudgetExceeded);
}

}  // namespace
}  // namespace plimsoll::estimator
