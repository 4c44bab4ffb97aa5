#include "estimator/sharder/fewest_trainers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "estimator/sharder/shard.h"
#include "estimator/sharder/verify.h"
#include "tests/estimator/sharder_instances.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

using plimsoll::testing::random_seed;
using ::testing::HasSubstr;

TEST(FewestTrainers, StartsAtTheBoundAndGoesByNodes) {
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

TEST(FewestTrainers, AnyCountWithinANode) {
  ShardRequest request = hundred_tables();
  request.budget = 2_GiB;
  EXPECT_EQ(*fewest_trainers_bound(request, 512), 5);
  EXPECT_EQ(shard_on_fewest_trainers(request, 1, 512)->trainers, 5);
  EXPECT_EQ(shard_on_fewest_trainers(request, 6, 512)->trainers, 6);
  EXPECT_EQ(shard_on_fewest_trainers(request, 9, 512)->trainers, 16);
}

TEST(FewestTrainers, AsksTheBudgetOfEachCountOnceAndInOrder) {
  const ShardRequest request = hundred_tables();
  std::vector<std::int64_t> requested;
  const Result<FewestTrainersPlan> found =
      shard_on_fewest_trainers(request, 4, 512, [&](ShardRequest& at, std::size_t variant) {
        const std::int64_t trainers = at.topology.trainers;
        at.budget = trainers <= 8 ? 1_MiB : 1_GiB - 4_MiB * trainers;
        if (variant == 0) {
          requested.push_back(trainers);
        }
        return Result<bool>(variant == 0);
      });
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->trainers, 16);
  EXPECT_THAT(requested, ::testing::ElementsAre(4, 5, 6, 7, 8, 16));
}

TEST(FewestTrainers, ABudgetThatCannotBeToldEndsTheSearch) {
  const Result<FewestTrainersPlan> found = shard_on_fewest_trainers(
      hundred_tables(), 1, 64,
      [](ShardRequest&, std::size_t) { return Result<bool>(Error(ErrorCode::kUnsupported, "no estimate")); });
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kUnsupported);
}

TEST(FewestTrainers, TriesEachVariantOfANumberBeforeTheNext) {
  std::vector<std::pair<std::int64_t, std::size_t>> tried;
  const Result<FewestTrainersPlan> found = shard_on_fewest_trainers(
      hundred_tables(), 8, 64, [&](ShardRequest& at, std::size_t variant) -> Result<bool> {
        const std::int64_t trainers = at.topology.trainers;
        if (trainers == 16 || variant == 2) {  // 16 have no variant
          return false;
        }
        tried.emplace_back(trainers, variant);
        at.budget = trainers == 24 && variant == 1 ? 1_GiB : 20_MiB;
        return true;
      });
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->trainers, 24);
  EXPECT_EQ(found->variant, 1U);
  EXPECT_THAT(tried, ::testing::ElementsAre(::testing::Pair(8, 0), ::testing::Pair(8, 1),
                                            ::testing::Pair(24, 0), ::testing::Pair(24, 1)));
}

// The largest number has no variant, and the only other one is ruled out by the tables' state.
TEST(FewestTrainers, SaysWhatIsMissingOnTheLargestNumberThatHasAVariant) {
  const Result<FewestTrainersPlan> found = shard_on_fewest_trainers(
      hundred_tables(), 8, 16, [](ShardRequest& at, std::size_t variant) -> Result<bool> {
        at.budget = 1_MiB;
        return at.topology.trainers == 8 && variant == 0;
      });
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kUnfittable);
  const Result<FewestTrainersPlan> none = shard_on_fewest_trainers(
      hundred_tables(), 8, 16, [](ShardRequest&, std::size_t) -> Result<bool> { return false; });
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kInvalid);
}

TEST(FewestTrainers, SaysWhyTheLargestCountFails) {
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

TEST(FewestTrainers, NoCountInTheRange) {
  const Result<FewestTrainersPlan> found = shard_on_fewest_trainers(hundred_tables(), 9, 15);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(shard_on_fewest_trainers(hundred_tables(), 8, 2).error().code, ErrorCode::kInvalid);
}

TEST(FewestTrainers, NeverPassesOverACountThatFits) {
  std::mt19937_64 random(random_seed());
  for (int i = 0; i < 150; ++i) {
    SCOPED_TRACE("seed " + std::to_string(random_seed()) + ", instance " + std::to_string(i));
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
