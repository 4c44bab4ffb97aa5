#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "estimator/sharder/sharder.h"

namespace plimsoll::estimator {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A request whose plan holds every sharding type: tables too large for a card, one hot and wide, small ones.
class SharderVerify : public ::testing::Test {
 protected:
  void SetUp() override {
    request_.topology.trainers = 16;
    request_.budget = 20_GiB;
    request_.tables = {{.name = "narrow", .rows = 500'000'000, .dim = 16, .lookups_per_sample = 1},
                       {.name = "hot", .rows = 1'000'000, .dim = 256, .lookups_per_sample = 100}};
    for (int i = 0; i < 20; ++i) {
      request_.tables.push_back({.name = "s" + std::to_string(i), .rows = 10, .dim = 64});
    }
    for (int i = 0; i < 40; ++i) {
      request_.tables.push_back({.name = "t" + std::to_string(i), .rows = 2'000'000, .dim = 64});
    }
    Result<Plan> plan = shard(request_);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    plan_ = *plan;
    ASSERT_THAT(verify(request_, plan_), IsEmpty());
  }

  TablePlacement& placement(ShardingType type) {
    for (TablePlacement& placement : plan_.placements) {
      if (placement.type == type) {
        return placement;
      }
    }
    ADD_FAILURE() << "the plan has no " << name_of(type) << " table";
    return plan_.placements.front();
  }

  void expect_wrong(const std::string& text) {
    const std::vector<std::string> wrong = verify(request_, plan_);
    ASSERT_THAT(wrong, Not(IsEmpty())) << text;
    EXPECT_THAT(wrong.front(), HasSubstr(text));
  }

  ShardRequest request_;
  Plan plan_;
};

TEST_F(SharderVerify, ATableLeftOut) {
  plan_.placements.pop_back();
  expect_wrong("1 tables are not placed");
}

TEST_F(SharderVerify, ATablePlacedTwice) {
  plan_.placements.push_back(plan_.placements.front());
  expect_wrong("placed twice");
}

TEST_F(SharderVerify, ATableThatThereIsNot) {
  plan_.placements.front().table = 4711;
  expect_wrong("names table 4711");
}

TEST_F(SharderVerify, RowsLeftOut) {
  placement(ShardingType::kTableRowWise).shards.pop_back();
  expect_wrong("table narrow is not covered exactly once (table_row_wise)");
}

TEST_F(SharderVerify, RowBlocksOnTheWrongRanks) {
  std::vector<Shard>& shards = placement(ShardingType::kTableRowWise).shards;
  std::swap(shards[0].rank, shards[1].rank);
  expect_wrong("not covered exactly once");
}

TEST_F(SharderVerify, ColumnsThatOverlap) {
  std::vector<Shard>& shards = placement(ShardingType::kColumnWise).shards;
  shards[1].column_begin -= 4;
  expect_wrong("is not covered exactly once (column_wise)");
}

TEST_F(SharderVerify, AMissingReplica) {
  placement(ShardingType::kDataParallel).shards.push_back({});
  expect_wrong("is not covered exactly once (data_parallel)");
}

TEST_F(SharderVerify, AShardOnNoRank) {
  placement(ShardingType::kTableWise).shards[0].rank = 16;
  expect_wrong("on rank 16 of 16");
}

TEST_F(SharderVerify, AShardMovedWithoutItsLoad) {
  Shard& moved = placement(ShardingType::kTableWise).shards[0];
  moved.rank = (moved.rank + 1) % 16;
  expect_wrong("the plan says");
}

TEST_F(SharderVerify, WrongFigures) {
  const Plan good = plan_;
  const std::vector<std::function<void(Plan&)>> changes = {
      [](Plan& plan) { plan.ranks[5].memory += Bytes{1}; },
      [](Plan& plan) { plan.ranks[5].milliseconds *= 1.000001; },
      [](Plan& plan) { plan.ranks.pop_back(); },
      [](Plan& plan) { plan.max_milliseconds *= 0.999999; },
      [](Plan& plan) { plan.mean_milliseconds *= 1.1; },
      [](Plan& plan) { plan.max_memory -= Bytes{1}; },
      [](Plan& plan) { plan.mean_memory = Bytes{1}; },
      [](Plan& plan) { plan.node_max_memory += Bytes{1}; },
      [](Plan& plan) { plan.node_mean_memory = Bytes{1}; },
      [](Plan& plan) { plan.lower_bound_milliseconds = plan.max_milliseconds * 1.001; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    plan_ = good;
    changes[i](plan_);
    EXPECT_THAT(verify(request_, plan_), Not(IsEmpty())) << "change " << i;
  }
}

TEST_F(SharderVerify, AnExceededBudget) {
  request_.budget = plan_.max_memory - Bytes{1};
  expect_wrong("exceeds its budget by 1 B");
}

TEST_F(SharderVerify, AnEmptyPlan) {
  plan_ = {};
  expect_wrong("62 tables are not placed");
}

}  // namespace
}  // namespace plimsoll::estimator
