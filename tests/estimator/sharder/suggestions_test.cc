#include "estimator/sharder/suggestions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "estimator/sharder/shard.h"
#include "tests/estimator/sharder_instances.h"

namespace plimsoll::estimator {
namespace {

using enum ShardingType;
using ::testing::HasSubstr;

TEST(Suggestions, ARemedyIsOneThatDoes) {
  for (const std::int64_t gib : {1, 2}) {
    ShardRequest request = some_tables(4);
    request.budget = 1_GiB * gib;
    ASSERT_FALSE(shard(request).ok());
    const Suggestion remedy = find_suggestion(request, 64);
    ASSERT_TRUE(remedy.trainers.has_value());
    ASSERT_TRUE(remedy.budget.has_value());
    EXPECT_THAT(to_string(remedy, 4), HasSubstr(" trainers fit, or 4 with "));
    ShardRequest wider = request;
    wider.topology.trainers = *remedy.trainers;
    EXPECT_TRUE(shard(wider).ok());
    request.budget = *remedy.budget;
    EXPECT_TRUE(shard(request).ok());
  }
}

TEST(Suggestions, NoRemedyIsSaidSo) {
  ShardRequest request = some_tables(4);
  request.constraints = {{.table = 6, .types = {kTableRowWise}, .ranks = {1, 2}}};
  const Suggestion remedy = find_suggestion(request, 8);
  EXPECT_FALSE(remedy.trainers.has_value());
  EXPECT_FALSE(remedy.budget.has_value());
  EXPECT_THAT(to_string(remedy, 4), HasSubstr("no number of trainers"));
}

TEST(Suggestions, TheBudgetIsAtMostTwoPercentMoreThanNeeded) {
  ShardRequest request = some_tables(4);
  request.budget = 1_GiB;
  const Suggestion remedy = find_suggestion(request, 4);
  ASSERT_TRUE(remedy.budget.has_value());
  EXPECT_GT(*remedy.budget, request.budget);
  request.budget = Bytes{remedy.budget->count * 100 / 102 - 1};
  EXPECT_FALSE(shard(request).ok());
}

TEST(Suggestions, NoMoreTrainersThanAllowed) {
  ShardRequest request = some_tables(4);
  request.budget = 1_GiB;  // 9.4 GiB of weights take more than 8 trainers
  EXPECT_FALSE(find_suggestion(request, 4).trainers.has_value());
  EXPECT_FALSE(find_suggestion(request, 8).trainers.has_value());
}

TEST(Suggestions, UnequalTrainersGetNone) {
  ShardRequest request = some_tables(4);
  request.budgets = {1_GiB, 1_GiB, 1_GiB, 2_GiB};
  ASSERT_FALSE(shard(request).ok());
  const Suggestion remedy = find_suggestion(request, 64);
  EXPECT_FALSE(remedy.trainers.has_value());
  EXPECT_FALSE(remedy.budget.has_value());
}

TEST(Suggestions, OneRemedyIsASentenceToo) {
  EXPECT_EQ(to_string(Suggestion{.trainers = 72, .budget = {}}, 64), "72 trainers fit");
  EXPECT_EQ(to_string(Suggestion{.trainers = {}, .budget = 3_GiB}, 64), "64 with 3.00 GiB each fit");
  EXPECT_EQ(to_string(Suggestion{.trainers = 72, .budget = 3_GiB}, 64),
            "72 trainers fit, or 64 with 3.00 GiB each");
}

}  // namespace
}  // namespace plimsoll::estimator
