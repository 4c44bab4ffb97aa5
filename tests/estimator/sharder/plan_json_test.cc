#include "estimator/sharder/plan_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json/edit.h"
#include "estimator/sharder/shard.h"
#include "estimator/sharder/verify.h"

namespace plimsoll::estimator {
namespace {

using enum ShardingType;
using ::testing::IsEmpty;

Plan planned(const ShardRequest& request) {
  const Result<Plan> plan = shard(request);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_THAT(verify(request, *plan), IsEmpty());
  return *plan;
}

TEST(PlanJson, FollowsTheContract) {
  const ShardRequest request{
      .tables = {{.name = "narrow", .rows = 500'000'000, .dim = 16},
                 {.name = "hot", .rows = 1'000'000, .dim = 256, .lookups_per_sample = 100},
                 {.name = "small", .rows = 10, .dim = 64}},
      .topology = {.trainers = 16},
      .budget = 20_GiB,
      .constraints = {{.table = 0, .types = {kTableRowWise}}}};
  const Plan plan = planned(request);
  const Json json = to_json(request, plan);
  EXPECT_TRUE(json["feasible"].asBool());
  EXPECT_EQ(json["perf"]["maxMs"].asDouble(), plan.max_milliseconds);
  EXPECT_EQ(json["perf"]["meanMs"].asDouble(), plan.mean_milliseconds);
  EXPECT_EQ(json["perf"]["lowerBoundMs"].asDouble(), plan.lower_bound_milliseconds);
  for (const char* field : {"maxBytes", "meanBytes", "nodeMaxBytes", "nodeMeanBytes"}) {
    EXPECT_TRUE(json["memory"][field].isInt64()) << field;
  }
  ASSERT_EQ(json["plan"].size(), request.tables.size());
  const Json& narrow = json["plan"][0];
  EXPECT_EQ(narrow["table"].asString(), "narrow");
  EXPECT_EQ(narrow["shardingType"].asString(), "table_row_wise");
  ASSERT_EQ(narrow["shards"].size(), 8U);
  EXPECT_EQ(narrow["shards"][0]["rowBegin"].asInt64(), 0);
  EXPECT_EQ(narrow["shards"][0]["rowEnd"].asInt64(), 62'500'000);
  EXPECT_EQ(narrow["shards"][0]["columnBegin"].asInt64(), 0);
  EXPECT_EQ(narrow["shards"][0]["columnEnd"].asInt64(), 16);
  EXPECT_EQ(narrow["shards"][7]["rank"].asInt64() - narrow["shards"][0]["rank"].asInt64(), 7);
}

TEST(PlanJson, TorchrecGetsItsShardingPlan) {
  ShardRequest request{.tables = {{.name = "rows", .rows = 10, .dim = 64},
                                  {.name = "copy", .rows = 3, .dim = 32},
                                  {.name = "grid", .rows = 100, .dim = 64},
                                  {.name = "columns", .rows = 100, .dim = 64}},
                       .topology = {.trainers = 8, .per_node = 4},
                       .budget = 1_GiB,
                       .constraints = {{.table = 0, .types = {kRowWise}},
                                       {.table = 1, .types = {kDataParallel}},
                                       {.table = 2, .types = {kGrid}},
                                       {.table = 3, .types = {kColumnWise}}}};
  request.tables[3].lookups_per_sample = 500;
  const Plan plan = planned(request);
  const Json json = to_torchrec_json(request, plan, "model.collection", "cuda")["model.collection"];
  // Ten rows on eight ranks: five blocks of two, and three ranks with none.
  const Json& rows = json["rows"];
  EXPECT_EQ(rows["sharding_type"].asString(), "row_wise");
  EXPECT_EQ(rows["compute_kernel"].asString(), "fused");
  ASSERT_EQ(rows["sharding_spec"]["shards"].size(), 8U);
  const Json& fifth = rows["sharding_spec"]["shards"][4];
  EXPECT_EQ(fifth["shard_offsets"][0].asInt(), 8);
  EXPECT_EQ(fifth["shard_sizes"][0].asInt(), 2);
  EXPECT_EQ(fifth["placement"].asString(), "rank:4/cuda:0");
  EXPECT_EQ(rows["sharding_spec"]["shards"][7]["shard_sizes"][0].asInt(), 0);
  EXPECT_EQ(rows["ranks"].size(), 8U);
  EXPECT_EQ(json["copy"]["compute_kernel"].asString(), "dense");
  EXPECT_TRUE(json["copy"]["sharding_spec"].isNull());
  EXPECT_EQ(json["copy"]["ranks"].size(), 8U);
  EXPECT_EQ(json["grid"]["sharding_type"].asString(), "grid_shard");
  EXPECT_EQ(json["grid"]["ranks"].size() % 4, 0U);
  EXPECT_EQ(json["columns"]["ranks"].size(), json["columns"]["sharding_spec"]["shards"].size());
  const Json cpu = to_torchrec_json(request, plan, "c", "cpu")["c"];
  EXPECT_EQ(cpu["rows"]["sharding_spec"]["shards"][4]["placement"].asString(), "rank:4/cpu");
}

TEST(PlanJson, ADataParallelTableIsWholeOnEveryRank) {
  const ShardRequest request{.tables = {{.name = "copy", .rows = 3, .dim = 32}},
                             .topology = {.trainers = 4},
                             .budget = 1_GiB,
                             .constraints = {{.table = 0, .types = {kDataParallel}}}};
  const Plan plan = planned(request);
  ASSERT_THAT(plan.placements[0].shards, IsEmpty());
  const Json json = to_json(request, plan);
  const Json& shards = json["plan"][0]["shards"];
  ASSERT_EQ(shards.size(), 4U);
  for (Json::ArrayIndex rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(shards[rank]["rank"].asUInt(), rank);
    EXPECT_EQ(shards[rank]["rowEnd"].asInt(), 3);
    EXPECT_EQ(shards[rank]["columnEnd"].asInt(), 32);
  }
  EXPECT_EQ(json["ranks"].size(), 4U);
  EXPECT_EQ(json["ranks"][3]["tableBytes"].asInt64(), 3 * 32 * 4);
}

TEST(PlanJson, AnEmptyPlanHasEmptyLists) {
  const Json json = to_json({}, {});
  EXPECT_TRUE(json["plan"].isArray());
  EXPECT_TRUE(json["plan"].empty());
  EXPECT_TRUE(json["ranks"].isArray());
}

TEST(PlanJson, ASummaryHasTheFiguresAlone) {
  Plan plan;
  plan.max_milliseconds = 3.5;
  plan.node_max_memory = 7_GiB;
  JsonObject json;
  write_summary(plan, json);
  const Json summary = std::move(json);
  EXPECT_EQ(summary["perf"]["maxMs"].asDouble(), 3.5);
  EXPECT_EQ(summary["memory"]["nodeMaxBytes"].asInt64(), (7_GiB).count);
  EXPECT_FALSE(summary.isMember("plan"));
}

}  // namespace
}  // namespace plimsoll::estimator
