#include "estimator/sharder/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace plimsoll::estimator {
namespace {

using enum ShardingType;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

ShardRequest one_table(std::int64_t trainers, std::int64_t rows, std::int64_t dim) {
  return {.tables = {{.name = "t", .rows = rows, .dim = dim}},
          .topology = {.trainers = trainers, .per_node = 4},
          .budget = 1_GiB,
          .optimizer = crds::Optimizer::kSGD};
}

// The numbers of column blocks that each type has options for.
std::map<ShardingType, std::set<std::int32_t>> cuts_of(const Options& options) {
  std::map<ShardingType, std::set<std::int32_t>> cuts;
  for (const Option& option : options.of(0)) {
    cuts[option.type].insert(option.cuts);
  }
  return cuts;
}

TEST(ShardingOptions, OneTrainerHasTheWholeTable) {
  const Options options(one_table(1, 1000, 64));
  ASSERT_EQ(options.tables(), 1U);
  ASSERT_EQ(options.of(0).size(), 1U);
  EXPECT_EQ(options.of(0).front().type, kTableWise);
}

TEST(ShardingOptions, ColumnBlocksAreEqualAndNoNarrowerThanSixteen) {
  // 96 columns on 8 trainers: up to 6 blocks of a multiple of 4 columns, so not 5; two nodes for the grid.
  const std::map<ShardingType, std::set<std::int32_t>> cuts = cuts_of(Options(one_table(8, 1000, 96)));
  EXPECT_THAT(cuts.at(kColumnWise), ElementsAre(2, 3, 4, 6));
  EXPECT_THAT(cuts.at(kGrid), ElementsAre(2));
  EXPECT_THAT(cuts.at(kTableWise), ElementsAre(1));
  EXPECT_FALSE(cuts_of(Options(one_table(8, 1000, 31))).contains(kColumnWise));
}

TEST(ShardingOptions, NoRankOfARowWiseTableIsEmptyUnlessAskedFor) {
  EXPECT_TRUE(cuts_of(Options(one_table(8, 8, 64))).contains(kRowWise));
  ShardRequest few = one_table(8, 7, 64);
  EXPECT_FALSE(cuts_of(Options(few)).contains(kRowWise));
  few.constraints = {{.table = 0, .types = {kRowWise}}};
  EXPECT_TRUE(cuts_of(Options(few)).contains(kRowWise));
}

TEST(ShardingOptions, HostMemoryAddsTwoKernels) {
  ShardRequest request = one_table(1, 1000, 64);
  request.host_budget = 1_GiB;
  std::set<Kernel> kernels;
  const Options options(request);
  for (const Option& option : options.of(0)) {
    kernels.insert(option.kernel);
  }
  EXPECT_THAT(kernels, ElementsAre(Kernel::kFused, Kernel::kHost, Kernel::kHostCached));
}

TEST(ShardingOptions, TheLastShardMayBeShorter) {
  ShardRequest request = one_table(4, 10, 16);
  request.tables[0].lookups_per_sample = 0;  // no buffers, and SGD has no state: weights alone
  request.constraints = {{.table = 0, .types = {kRowWise}}};
  const Options options(request);
  ASSERT_EQ(options.of(0).size(), 1U);
  const Option& rows = options.of(0).front();
  EXPECT_EQ(rows.bytes, 3 * 16 * 4);  // blocks of 3, 3, 3 and 1 rows
  EXPECT_EQ(rows.total_bytes, 10 * 16 * 4);
  EXPECT_EQ(rows.total_ms, 4 * rows.ms);
  EXPECT_TRUE(rows.everywhere());
}

TEST(ShardingOptions, WhatDoesNotFitIsLeftOutAndTheSmallestIsKept) {
  ShardRequest request = one_table(4, 1'000'000, 64);  // 256 MB
  request.tables[0].lookups_per_sample = 0;
  request.budget = Bytes{1'000'000 * 64};  // a quarter: by rows, by four column blocks, on one node
  const std::map<ShardingType, std::set<std::int32_t>> cuts = cuts_of(Options(request));
  EXPECT_FALSE(cuts.contains(kTableWise));
  EXPECT_FALSE(cuts.contains(kDataParallel));
  EXPECT_TRUE(cuts.contains(kRowWise));
  EXPECT_THAT(cuts.at(kColumnWise), ElementsAre(4));
  request.budget = request.budget - Bytes{1};
  const Options none(request);
  EXPECT_THAT(none.of(0), IsEmpty());
  EXPECT_TRUE(none.possible(0));
  EXPECT_EQ(none.smallest(0).bytes, 1'000'000 * 64);
}

TEST(ShardingOptions, AConstraintMayAllowNone) {
  ShardRequest request = one_table(8, 1000, 64);
  request.constraints = {{.table = 0, .types = {kTableRowWise}, .ranks = {0, 1, 2}}};  // of a node of four
  const Options options(request);
  EXPECT_THAT(options.of(0), IsEmpty());
  EXPECT_FALSE(options.possible(0));
}

TEST(ShardingOptions, TheLongestIsOfShardsThatOnlySomeRanksHave) {
  const ShardRequest request = one_table(8, 1000, 96);
  const Options options(request);
  double longest = 0;
  for (const Option& option : options.of(0)) {
    longest = option.everywhere() ? longest : std::max(longest, option.ms);
  }
  EXPECT_GT(longest, 0);
  EXPECT_EQ(options.longest_ms(), longest);
  ShardRequest copied = request;
  copied.constraints = {{.table = 0, .types = {kDataParallel}}};
  EXPECT_EQ(Options(copied).longest_ms(), 0);
}

TEST(ShardingOptions, RanksOfABlock) {
  const CostModel model(one_table(8, 1000, 96));
  EXPECT_EQ((Option{.type = kColumnWise}.ranks_per_block(model)), 1);
  EXPECT_EQ((Option{.type = kGrid}.ranks_per_block(model)), 4);
  EXPECT_EQ((Option{.type = kRowWise}.ranks_per_block(model)), 8);
}

TEST(MemoryLimits, UnequalTrainersFallShortOfTheLargest) {
  ShardRequest request = one_table(3, 10, 16);
  request.budgets = {2_GiB, 3_GiB, 1_GiB};
  const MemoryLimits limits(request);
  const auto gib = static_cast<double>((1_GiB).count);
  EXPECT_EQ(limits.gpu, 3 * gib);
  EXPECT_EQ(limits.all_gpus, 6 * gib);
  EXPECT_THAT(limits.shortfall, ElementsAre(gib, 0, 2 * gib));
}

TEST(MemoryLimits, BudgetsAreCutOffWhereDoublesAreExact) {
  ShardRequest request = one_table(2, 10, 16);
  request.budget = Bytes::max();
  const MemoryLimits limits(request);
  EXPECT_EQ(limits.gpu, kLargestBudget);
  EXPECT_EQ(limits.all_gpus, 2 * kLargestBudget);
  EXPECT_THAT(limits.shortfall, IsEmpty());
}

TEST(ShardingOptions, AreTakenFromTheRequestsBudget) {
  ShardRequest request = one_table(8, 1000, 96);
  Budget work({.work = 3});
  request.work_budget = &work;
  EXPECT_THROW(Options{request}, BudgetExceeded);
  Budget memory({.memory = Bytes{100}});
  request.work_budget = &memory;
  EXPECT_THROW(Options{request}, BudgetExceeded);
}

}  // namespace
}  // namespace plimsoll::estimator
