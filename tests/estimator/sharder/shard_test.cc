#include "estimator/sharder/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "estimator/sharder/fewest_trainers.h"
#include "tests/estimator/sharder_instances.h"

namespace plimsoll::estimator {
namespace {

using ::testing::HasSubstr;

void expect_invalid(const ShardRequest& request, const std::string& text) {
  const Result<Plan> plan = shard(request);
  ASSERT_FALSE(plan.ok()) << text;
  EXPECT_EQ(plan.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(plan.error().message, HasSubstr(text));
}

TEST(SharderFailure, SaysHowMuchMemoryIsMissingInAll) {
  const ShardRequest request = hundred_tables();
  Infeasibility why;
  const Result<Plan> plan = shard(request, &why);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kUnfittable);
  EXPECT_THAT(plan.error().message, HasSubstr("TotalMemory: the tables take at least 9."));
  EXPECT_THAT(plan.error().message, HasSubstr("8 trainers have 8.00 GiB"));
  EXPECT_EQ(why.constraint, "TotalMemory");
  // 100 tables of weights and one state a row; each has buffers for 8 trainers of 512 samples.
  const std::int64_t table = 400'000 * (64 + 1) * 4 + 8 * 512 * (8 + 64 * 4);
  EXPECT_EQ(why.missing, Bytes{100 * table} - 8_GiB);
  EXPECT_EQ(rule_out(request).missing, why.missing);
}

TEST(LeastMilliseconds, AreThePlansLowerBound) {
  ShardRequest request = hundred_tables();
  EXPECT_FALSE(least_milliseconds(request).ok()) << "the tables take more than there is";
  request.budget = 16_GiB;
  const Result<Plan> plan = shard(request);
  const Result<double> least = least_milliseconds(request);
  ASSERT_TRUE(plan.ok() && least.ok());
  EXPECT_EQ(*least, plan->lower_bound_milliseconds);
  request.topology.trainers = 0;
  EXPECT_EQ(least_milliseconds(request).error().code, ErrorCode::kInvalid);
}

TEST(SharderFailure, NamesTheTableWhoseSmallestShardIsTooLarge) {
  ShardRequest request = hundred_tables();
  request.budget = 16_GiB;
  request.tables[42] = {.name = "giant", .rows = 4'000'000'000, .dim = 16};
  Infeasibility why;
  const Result<Plan> plan = shard(request, &why);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kUnfittable);
  EXPECT_EQ(why.constraint, "LargestPiece");
  EXPECT_THAT(plan.error().message, HasSubstr("smallest shard of table giant (row_wise)"));
  const std::int64_t shard_bytes = 500'000'000LL * (16 + 1) * 4 + 512 * 8 + 8 * 512 * 16 * 4;
  // All tables need room: the other 99, too.
  const std::int64_t table = 400'000 * (64 + 1) * 4 + 8 * 512 * (8 + 64 * 4);
  const std::int64_t giant = 4'000'000'000LL * (16 + 1) * 4;
  EXPECT_GT(why.missing, (Bytes{shard_bytes} - 16_GiB) * 8);
  EXPECT_GT(why.missing, Bytes{giant + 99 * table} - 8 * 16_GiB);
  EXPECT_LT(why.missing, Bytes{giant + 99 * table} - 8 * 16_GiB + 1_GiB);
  EXPECT_THAT(plan.error().message,
              HasSubstr("at least " + to_string(why.missing) + " missing on 8 trainers"));
}

TEST(SharderFailure, TwoShardsThatEachFitButNotTogether) {
  // Three tables of 0.6 budgets that cannot be cut, on two trainers: 1.8 of 2 budgets.
  ShardRequest request{.topology = {.trainers = 2}, .optimizer = crds::Optimizer::kSGD};
  for (int i = 0; i < 3; ++i) {
    request.tables.push_back({.name = "t", .rows = 1, .dim = 31 * 31, .lookups_per_sample = 0});
  }
  request.budget = Bytes{31 * 31 * 4 * 10 / 6};
  Infeasibility why;
  const Result<Plan> plan = shard(request, &why);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kUnfittable);
  EXPECT_EQ(why.constraint, "Placement");
  EXPECT_EQ(why.missing, (Bytes{2 * 31 * 31 * 4} - request.budget) * 2) << "equal trainers grow alike";
}

TEST(SharderFailure, NoMemoryAtAll) {
  ShardRequest request = hundred_tables();
  for (const Bytes budget : {Bytes{0}, Bytes{-5}, Bytes{1}}) {
    request.budget = budget;
    Infeasibility why;
    EXPECT_FALSE(shard(request, &why).ok());
    EXPECT_EQ(why.constraint, "LargestPiece");
  }
}

TEST(SharderFailure, AbsurdTablesDoNotFitAndDoNotWrap) {
  const ShardRequest request{.tables = {{.name = "absurd", .rows = 1'000'000'000'000'000, .dim = 4096}},
                             .topology = {.trainers = 128},
                             .budget = 80_GiB};
  Infeasibility why;
  EXPECT_FALSE(shard(request, &why).ok());
  EXPECT_EQ(why.constraint, "LargestPiece");
  EXPECT_GT(why.missing, 1_GiB * 1024 * 1024);
  EXPECT_FALSE(fewest_trainers_bound(request, 65'536).ok());
}

TEST(SharderFailure, RefusesWhatCannotBe) {
  ShardRequest request = hundred_tables();
  request.topology.trainers = 12;
  expect_invalid(request, "multiple of the 8 of a node");
  request.topology.trainers = 0;
  expect_invalid(request, "trainers must be from 1 to 65536, is 0");
  request.topology.trainers = 1'000'000;
  expect_invalid(request, "trainers must be from 1");
  request.topology = {.trainers = 8, .per_node = 0};
  expect_invalid(request, "trainers per node");
  request = hundred_tables();
  request.batch_size = 0;
  expect_invalid(request, "batch size");
  request = hundred_tables();
  request.topology.inter_node_bandwidth = Bytes{0};
  expect_invalid(request, "bandwidth between nodes");
  request = hundred_tables();
  request.tables[3].rows = 0;
  expect_invalid(request, "rows of table t3");
  request = hundred_tables();
  request.tables[3].dim = -64;
  expect_invalid(request, "dim of table t3");
  request = hundred_tables();
  request.tables[3].element_bytes = 0;
  expect_invalid(request, "bytes of an element of table t3");
  for (const double lookups :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    request = hundred_tables();
    request.tables[3].lookups_per_sample = lookups;
    expect_invalid(request, "lookups a sample of table t3");
  }
}

TEST(Shard, TheLastRowBlockIsShorter) {
  // Ten rows on four trainers: 3, 3, 3 and 1.
  const ShardRequest request{.tables = {{.name = "t", .rows = 10, .dim = 16}},
                             .topology = {.trainers = 4},
                             .budget = 1_GiB,
                             .optimizer = crds::Optimizer::kSGD,
                             .constraints = {{.table = 0, .types = {ShardingType::kRowWise}}}};
  const Result<Plan> plan = shard(request);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  ASSERT_EQ(plan->placements[0].shards.size(), 4U);
  const Shard& last = plan->placements[0].shards[3];
  EXPECT_EQ(last.row_begin, 9);
  EXPECT_EQ(last.row_end, 10);
  EXPECT_EQ(plan->ranks[0].weights, Bytes{3 * 16 * 4});
  EXPECT_EQ(plan->ranks[3].weights, Bytes{1 * 16 * 4});
  EXPECT_EQ(plan->ranks[3].milliseconds, plan->ranks[0].milliseconds)
      << "all ranks take part in the exchange";
}

TEST(Shard, ANodesMemoryIsThatOfItsTrainers) {
  ShardRequest request = hundred_tables();
  request.topology = {.trainers = 16, .per_node = 8};
  const Result<Plan> plan = shard(request);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  Bytes nodes[2];
  for (std::size_t rank = 0; rank < 16; ++rank) {
    nodes[rank / 8] += plan->ranks[rank].memory;
  }
  EXPECT_EQ(plan->node_max_memory, std::max(nodes[0], nodes[1]));
  EXPECT_EQ(plan->node_mean_memory, Bytes{(nodes[0] + nodes[1]).count / 2 + (nodes[0] + nodes[1]).count % 2});
}

}  // namespace
}  // namespace plimsoll::estimator
