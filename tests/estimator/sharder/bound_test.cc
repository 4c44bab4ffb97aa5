#include "estimator/sharder/bound.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/estimator/sharder_instances.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

using plimsoll::testing::random_seed;
using ::testing::HasSubstr;

TEST(TimeBound, OfASingleWayIsItsTime) {
  const ShardRequest request{.tables = {{.name = "t", .rows = 1000, .dim = 64}}, .budget = 1_GiB};
  const Options options(request);
  ASSERT_EQ(options.of(0).size(), 1U);
  const TimeBound bound = bound_time(options, 1, MemoryLimits(request));
  const double only = options.of(0).front().ms;
  EXPECT_LE(bound.milliseconds, only);
  EXPECT_NEAR(bound.milliseconds, only, only * 1e-9);
}

TEST(TimeBound, IsNotBelowTheTableThatCannotBeSplit) {
  // A single row of 16 columns has only whole shards, whatever the number of trainers.
  const ShardRequest request{.tables = {{.name = "hot", .rows = 1, .dim = 16, .lookups_per_sample = 1000}},
                             .topology = {.trainers = 8},
                             .budget = 1_GiB};
  const Options options(request);
  double shortest = std::numeric_limits<double>::infinity();
  for (const Option& option : options.of(0)) {
    shortest = std::min(shortest, option.ms);
  }
  EXPECT_GE(bound_time(options, 8, MemoryLimits(request)).milliseconds, shortest * (1 - 1e-9));
}

TEST(TimeBound, NoPlanIsFaster) {
  std::mt19937_64 random(random_seed());
  int compared = 0;
  for (int i = 0; i < 100; ++i) {
    ShardRequest request = random_request(random, {.most_tables = 3, .trainers = {2, 3, 4}});
    for (Table& table : request.tables) {
      table.dim = std::min<std::int64_t>(table.dim, 64);
    }
    SCOPED_TRACE("seed " + std::to_string(random_seed()) + ", instance " + std::to_string(i));
    const std::optional<double> least = exhaustive_time(request);
    if (least) {
      const TimeBound bound = bound_time(Options(request), request.topology.trainers, MemoryLimits(request));
      ASSERT_LE(bound.milliseconds, *least * (1 + 1e-9));
      ++compared;
    }
  }
  EXPECT_GT(compared, 50);
}

TEST(TimeBound, MemoryHasAPriceOnlyWhereItIsScarce) {
  ShardRequest request = hundred_tables();
  request.budget = Bytes::max();
  const TimeBound free = bound_time(Options(request), 8, MemoryLimits(request));
  EXPECT_EQ(free.prices.card, 0);
  EXPECT_EQ(free.prices.host, 0);
  // The trainers have half of what all tables take on the cards; the others are read from host memory.
  request.budget = 600_MiB;
  request.host_budget = 4_GiB;
  const TimeBound dear = bound_time(Options(request), 8, MemoryLimits(request));
  EXPECT_GT(dear.prices.card, 0);
  EXPECT_GT(dear.milliseconds, free.milliseconds);
}

TEST(RuleOut, NamesTheTableThatMayBeNowhere) {
  ShardRequest request = hundred_tables();
  request.constraints = {{.table = 17, .types = {ShardingType::kTableRowWise}, .ranks = {0, 1}}};
  const Infeasibility found = rule_out(request, Options(request));
  EXPECT_EQ(found.constraint, "Pinned");
  EXPECT_EQ(found.table, "t17");
  EXPECT_THAT(found.reason, HasSubstr("on 8 trainers"));
}

TEST(RuleOut, CountsHostMemoryToo) {
  ShardRequest request = hundred_tables();
  request.budget = 600_MiB;  // of 1.3 GiB for each trainer
  EXPECT_EQ(rule_out(request, Options(request)).constraint, "TotalMemory");
  request.host_budget = 4_GiB;
  EXPECT_EQ(rule_out(request, Options(request)).constraint, "");
}

// One table of 64000 bytes, without optimizer state; its output is 512 rows of 64 bytes on each trainer.
ShardRequest one_table() {
  return {.tables = {{.name = "t", .rows = 1000, .dim = 16}},
          .budget = Bytes{1},
          .optimizer = crds::Optimizer::kSGD};
}

TEST(StateBound, DividesStateAndRepeatsBuffers) {
  const StateBound bound(one_table());
  constexpr std::int64_t kOutput = 512 * 16 * 4;
  EXPECT_FALSE(bound.rules_out(1, Bytes{64'000 + kOutput}));
  EXPECT_TRUE(bound.rules_out(1, Bytes{64'000 + kOutput - 1}));
  EXPECT_FALSE(bound.rules_out(2, Bytes{32'000 + kOutput}));
  EXPECT_TRUE(bound.rules_out(2, Bytes{32'000 + kOutput - 1}));
}

TEST(StateBound, APipelineKeepsNoOutputsUnlessThePeakIsInTheLookups) {
  ShardRequest request = one_table();
  request.pipeline = Pipeline::kSparseDist;
  EXPECT_FALSE(StateBound(request).rules_out(1, Bytes{64'000}));
  EXPECT_TRUE(StateBound(request).rules_out(1, Bytes{63'999}));
  request.embeddings_at_peak = true;
  EXPECT_TRUE(StateBound(request).rules_out(1, Bytes{64'000}));
}

TEST(StateBound, RulesOutNothingWithHostMemoryOrUnequalTrainers) {
  ShardRequest host = one_table();
  host.host_budget = 1_GiB;
  EXPECT_FALSE(StateBound(host).rules_out(1, Bytes{1}));
  ShardRequest unequal = one_table();
  unequal.budgets = {Bytes{1}};
  EXPECT_FALSE(StateBound(unequal).rules_out(1, Bytes{1}));
}

}  // namespace
}  // namespace plimsoll::estimator
