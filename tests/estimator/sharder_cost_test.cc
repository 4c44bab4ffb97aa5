#include <gtest/gtest.h>

#include <cmath>

#include "estimator/sharder/cost.h"
#include "tests/estimator/sharder_golden_options.h"

namespace plimsoll::estimator {
namespace {

Table golden_table(std::size_t index) {
  const GoldenTable& table = kGoldenTables[index];
  return {.name = "t" + std::to_string(index),
          .rows = table.rows,
          .dim = table.dim,
          .lookups_per_sample = table.pooling_factor * table.lookup_frequency};
}

TEST(SharderCost, EqualsTorchrecOnEveryGoldenOption) {
  const CostModel model({.trainers = 128}, 1024, crds::Optimizer::kRowWiseAdagrad);
  for (const GoldenOption& golden : kGoldenOptions) {
    const Table table = golden_table(golden.table);
    const TableCost cost(model, table);
    const std::int64_t columns =
        golden.type == ShardingType::kColumnWise ? table.dim / golden.shards : table.dim;
    SCOPED_TRACE(table.name + " " + name_of(golden.type));
    EXPECT_NEAR(cost.milliseconds(golden.type, columns) / golden.milliseconds, 1, 1e-12);
    EXPECT_EQ(cost.memory(golden.type, cost.rows_of(golden.type, 0), columns).count, golden.bytes);
  }
}

TEST(SharderCost, OptimizersHoldTheStateTheyAllocate) {
  const Table table{.name = "t", .rows = 1000, .dim = 64, .lookups_per_sample = 0};
  const std::int64_t weights = 1000 * 64 * 4;
  const auto held = [&](crds::Optimizer optimizer) {
    return TableCost(CostModel({.trainers = 8}, 512, optimizer), table)
        .memory(ShardingType::kTableWise, table.rows, table.dim)
        .count;
  };
  EXPECT_EQ(held(crds::Optimizer::kSGD), weights);
  EXPECT_EQ(held(crds::Optimizer::kRowWiseAdagrad), weights + 1000 * 4);
  EXPECT_EQ(held(crds::Optimizer::kAdagrad), 2 * weights);
  EXPECT_EQ(held(crds::Optimizer::kMomentum), 2 * weights);
  EXPECT_EQ(held(crds::Optimizer::kAdam), 3 * weights);
  EXPECT_EQ(held(crds::Optimizer::kAdamW), 3 * weights);
}

TEST(SharderCost, RowBlocksAreEqualButForTheLast) {
  const Table table{.name = "t", .rows = 10, .dim = 16};
  const TableCost cost(CostModel({.trainers = 16}, 512, crds::Optimizer::kSGD), table);
  EXPECT_EQ(cost.row_block(ShardingType::kRowWise), 1);
  EXPECT_EQ(cost.rows_of(ShardingType::kRowWise, 9), 1);
  EXPECT_EQ(cost.rows_of(ShardingType::kRowWise, 10), 0);
  EXPECT_EQ(cost.row_block(ShardingType::kTableRowWise), 2);
  EXPECT_EQ(cost.rows_of(ShardingType::kTableRowWise, 4), 2);
  EXPECT_EQ(cost.rows_of(ShardingType::kTableRowWise, 5), 0);
  EXPECT_EQ(cost.memory(ShardingType::kRowWise, 0, 16).count, 0) << "an empty shard needs no buffers";
}

TEST(SharderCost, OneNodeExchangesOverNvlink) {
  const Table table{.name = "t", .rows = 1000, .dim = 128, .lookups_per_sample = 4};
  const auto time = [&](std::int64_t trainers) {
    return TableCost(CostModel({.trainers = trainers}, 512, crds::Optimizer::kSGD), table)
               .milliseconds(ShardingType::kTableWise, table.dim) /
           static_cast<double>(trainers);
  };
  EXPECT_NEAR(time(2), time(8), 1e-9);
  EXPECT_GT(time(16), 5 * time(8));
}

TEST(SharderCost, FewerBytesAnElementCostLess) {
  Table table{.name = "t", .rows = 1000, .dim = 128, .lookups_per_sample = 4, .element_bytes = 4};
  const CostModel model({.trainers = 16}, 512, crds::Optimizer::kAdam);
  const TableCost wide(model, table);
  table.element_bytes = 2;
  const TableCost narrow(model, table);
  EXPECT_LT(narrow.milliseconds(ShardingType::kTableWise, 128),
            wide.milliseconds(ShardingType::kTableWise, 128));
  EXPECT_LT(narrow.memory(ShardingType::kTableWise, 1000, 128),
            wide.memory(ShardingType::kTableWise, 1000, 128));
}

TEST(SharderCost, AbsurdTablesSaturate) {
  const Table table{.name = "t", .rows = 1'000'000'000'000'000'000, .dim = 4096, .lookups_per_sample = 1e12};
  const TableCost cost(CostModel({.trainers = 1024}, std::int64_t{1} << 40, crds::Optimizer::kAdam), table);
  for (const ShardingType type : {ShardingType::kDataParallel, ShardingType::kTableWise,
                                  ShardingType::kRowWise, ShardingType::kTableRowWise}) {
    EXPECT_EQ(cost.memory(type, table.rows, table.dim), Bytes::max()) << name_of(type);
    EXPECT_TRUE(std::isfinite(cost.milliseconds(type, table.dim))) << name_of(type);
  }
}

}  // namespace
}  // namespace plimsoll::estimator
