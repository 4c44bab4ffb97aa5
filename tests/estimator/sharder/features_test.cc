// What a request may ask beside tables and trainers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "estimator/sharder/sharder.h"
#include "tests/estimator/sharder_instances.h"

namespace plimsoll::estimator {
namespace {

using enum ShardingType;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Plan planned(const ShardRequest& request) {
  const Result<Plan> plan = shard(request);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_THAT(verify(request, *plan), IsEmpty());
  return *plan;
}

std::set<std::int64_t> ranks_of(const TablePlacement& placement) {
  std::set<std::int64_t> ranks;
  for (const Shard& shard : placement.shards) {
    ranks.insert(shard.rank);
  }
  return ranks;
}

TEST(SharderFeatures, ATableHasOnlyTheTypesItIsAllowed) {
  const ShardingType types[] = {kDataParallel, kTableWise,    kColumnWise, kTableColumnWise,
                                kRowWise,      kTableRowWise, kGrid};
  for (const ShardingType type : types) {
    ShardRequest request = some_tables(16);
    request.constraints = {{.table = 3, .types = {type}}, {.table = 7, .types = {type, kTableWise}}};
    const Plan plan = planned(request);
    EXPECT_EQ(plan.placements[3].type, type);
    EXPECT_TRUE(plan.placements[7].type == type || plan.placements[7].type == kTableWise);
  }
}

TEST(SharderFeatures, ATableLiesOnlyOnTheRanksItIsPinnedTo) {
  ShardRequest request = some_tables(16);
  request.constraints = {{.table = 0, .ranks = {5}},
                         {.table = 1, .types = {kColumnWise}, .ranks = {2, 9, 11}},
                         {.table = 2, .types = {kTableRowWise}, .ranks = {0, 4, 5, 6, 7}},
                         {.table = 3, .types = {kTableColumnWise}, .ranks = {1, 12, 14}}};
  const Plan plan = planned(request);
  EXPECT_EQ(ranks_of(plan.placements[0]), (std::set<std::int64_t>{5}));
  EXPECT_EQ(ranks_of(plan.placements[2]), (std::set<std::int64_t>{4, 5, 6, 7}));
}

TEST(SharderFeatures, AnImpossibleConstraintIsNamed) {
  ShardRequest request = some_tables(16);
  request.constraints = {{.table = 6, .types = {kTableRowWise}, .ranks = {1, 2, 3, 4}}};
  Infeasibility why;
  const Result<Plan> plan = shard(request, &why);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kUnfittable);
  EXPECT_EQ(why.constraint, "Pinned");
  EXPECT_EQ(why.table, "t7");
}

TEST(SharderFeatures, WrongConstraintsAreInvalid) {
  const auto refused = [](const std::vector<Constraint>& constraints, const char* text) {
    ShardRequest request = some_tables(8);
    request.constraints = constraints;
    const Result<Plan> plan = shard(request);
    ASSERT_FALSE(plan.ok()) << text;
    EXPECT_EQ(plan.error().code, ErrorCode::kInvalid);
    EXPECT_THAT(plan.error().message, HasSubstr(text));
  };
  refused({{.table = 24}}, "names table 24 of 24");
  refused({{.table = -1}}, "names table -1");
  refused({{.table = 1}, {.table = 1}}, "t2 has two constraints");
  refused({{.table = 1, .ranks = {8}}}, "pinned to rank 8 of 8");
  refused({{.table = 1, .ranks = {-1}}}, "pinned to rank -1");
}

TEST(SharderFeatures, UnequalTrainersAreFilledByWhatTheyHave) {
  ShardRequest request = some_tables(8);
  for (int rank = 0; rank < 8; ++rank) {
    request.budgets.push_back(rank < 4 ? 512_MiB : 3_GiB);
  }
  const Plan plan = planned(request);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_LE(plan.ranks[static_cast<std::size_t>(rank)].memory, 512_MiB);
  }
  request.budgets.pop_back();
  EXPECT_THAT(shard(request).error().message, HasSubstr("budgets of 7 trainers for 8"));
  EXPECT_EQ(shard_on_fewest_trainers(request, 1, 64).error().code, ErrorCode::kInvalid);
}

TEST(SharderFeatures, ColdTablesGoToTheHostWhenTheCardsAreFull) {
  ShardRequest request = some_tables(4);
  request.budget = 2_GiB;
  ASSERT_FALSE(shard(request).ok());
  request.host_budget = 4_GiB;
  for (std::size_t i = 0; i < request.tables.size(); i += 2) {
    request.tables[i].lookups_per_sample = 1e-4;
  }
  const Plan plan = planned(request);
  std::set<bool> cold_on_host;
  for (std::size_t i = 0; i < plan.placements.size(); ++i) {
    if (plan.placements[i].kernel == Kernel::kHost || plan.placements[i].kernel == Kernel::kHostCached) {
      EXPECT_LT(request.tables[i].lookups_per_sample, 1) << "a hot table where a cold one would do";
    }
  }
  for (const RankLoad& load : plan.ranks) {
    EXPECT_LE(load.host_memory, request.host_budget);
  }
}

TEST(SharderFeatures, MoreSlackInTimeGivesLevellerMemory) {
  ShardRequest request = some_tables(8);
  request.tables[23].rows *= 12;
  request.tables[23].lookups_per_sample = 0.01;
  request.time_slack = 0;
  const Plan tight = planned(request);
  request.time_slack = 0.5;
  const Plan loose = planned(request);
  EXPECT_LE(loose.max_memory, tight.max_memory);
  EXPECT_LE(loose.max_milliseconds, 1.5 * loose.lower_bound_milliseconds);
  request.time_slack = -0.1;
  EXPECT_EQ(shard(request).error().code, ErrorCode::kInvalid);
}

TEST(SharderFeatures, StagesAreCountedInLockstep) {
  ShardRequest request = some_tables(16);
  request.cost = CostMethod::kStages;
  const Plan plan = planned(request);
  EXPECT_DOUBLE_EQ(plan.max_milliseconds, plan.critical_path.total());
  for (const RankLoad& load : plan.ranks) {
    EXPECT_LE(load.milliseconds, plan.max_milliseconds);
  }
}

}  // namespace
}  // namespace plimsoll::estimator
