#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "estimator/sharder/sharder.h"
#include "tests/estimator/sharder_instances.h"

namespace plimsoll::estimator {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kSeed = 9;

ShardRequest hundred_tables() {
  ShardRequest request{.topology = {.trainers = 8}, .budget = 1_GiB};
  for (int i = 0; i < 100; ++i) {
    request.tables.push_back({.name = "t" + std::to_string(i), .rows = 400'000, .dim = 64});
  }
  return request;
}

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
  EXPECT_EQ(why.missing, Bytes{shard_bytes} - 16_GiB);
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
  EXPECT_EQ(why.missing, Bytes{2 * 31 * 31 * 4} - request.budget);
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

TEST(SharderSmallest, StartsAtTheBoundAndGoesByNodes) {
  ShardRequest request = hundred_tables();
  const Result<std::int64_t> bound = fewest_trainers_bound(request, 512);
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(*bound, 16);
  const Result<FewestTrainersPlan> found = shard_on_fewest_trainers(request, 1, 512);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->trainers, 16);
  EXPECT_EQ(found->searched, 1);
  request.topology.trainers = found->trainers;
  EXPECT_TRUE(verify(request, found->plan).empty());
}

TEST(SharderSmallest, AnyCountWithinANode) {
  ShardRequest request = hundred_tables();
  request.budget = 2_GiB;
  EXPECT_EQ(*fewest_trainers_bound(request, 512), 5);
  EXPECT_EQ(shard_on_fewest_trainers(request, 1, 512)->trainers, 5);
  EXPECT_EQ(shard_on_fewest_trainers(request, 6, 512)->trainers, 6);
  EXPECT_EQ(shard_on_fewest_trainers(request, 9, 512)->trainers, 16);
}

TEST(SharderSmallest, AsksTheBudgetOfEachCountOnceAndInOrder) {
  const ShardRequest request = hundred_tables();
  std::vector<std::int64_t> asked;
  const Result<FewestTrainersPlan> found =
      shard_on_fewest_trainers(request, 4, 512, [&](std::int64_t trainers) {
        asked.push_back(trainers);
        return Result<Bytes>(trainers <= 8 ? 1_MiB : 1_GiB - 4_MiB * trainers);
      });
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->trainers, 16);
  EXPECT_THAT(asked, ::testing::ElementsAre(4, 5, 6, 7, 8, 16));
}

TEST(SharderSmallest, ABudgetThatCannotBeToldEndsTheSearch) {
  const Result<FewestTrainersPlan> found = shard_on_fewest_trainers(
      hundred_tables(), 1, 64,
      [](std::int64_t) { return Result<Bytes>(Error(ErrorCode::kUnsupported, "no estimate")); });
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kUnsupported);
}

TEST(SharderSmallest, SaysWhyTheLargestCountFails) {
  ShardRequest request = hundred_tables();
  request.budget = 30_MiB;
  Infeasibility why;
  const Result<FewestTrainersPlan> found = shard_on_fewest_trainers(request, 1, 64, {}, &why);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kUnfittable);
  EXPECT_THAT(found.error().message, HasSubstr("64 trainers"));
  EXPECT_EQ(why.constraint, "TotalMemory");
  const Result<std::int64_t> bound = fewest_trainers_bound(request, 64);
  ASSERT_FALSE(bound.ok());
  EXPECT_EQ(bound.error().code, ErrorCode::kUnfittable);
}

TEST(SharderSmallest, NoCountInTheRange) {
  const Result<FewestTrainersPlan> found = shard_on_fewest_trainers(hundred_tables(), 9, 15);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(shard_on_fewest_trainers(hundred_tables(), 8, 2).error().code, ErrorCode::kInvalid);
}

TEST(SharderSmallest, NeverPassesOverACountThatFits) {
  std::mt19937_64 random(kSeed);
  for (int i = 0; i < 150; ++i) {
    SCOPED_TRACE("seed " + std::to_string(kSeed) + ", instance " + std::to_string(i));
    ShardRequest request = random_request(random, {.most_tables = 20, .trainers = {16}});
    const Result<std::int64_t> bound = fewest_trainers_bound(request, 24);
    std::int64_t first = 0;
    for (const std::int64_t trainers : {1, 2, 3, 4, 5, 6, 7, 8, 16, 24}) {
      request.topology.trainers = trainers;
      if (shard(request).ok()) {
        first = trainers;
        break;
      }
    }
    const Result<FewestTrainersPlan> found = shard_on_fewest_trainers(request, 1, 24);
    EXPECT_EQ(found.ok() ? found->trainers : 0, first);
    if (first != 0) {
      ASSERT_TRUE(bound.ok());
      EXPECT_LE(*bound, first);
    }
  }
}

}  // namespace
}  // namespace plimsoll::estimator
