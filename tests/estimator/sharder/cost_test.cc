#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string>

#include "estimator/sharder/cost.h"
#include "tests/estimator/data_files.h"

namespace plimsoll::estimator {
namespace {

constexpr ShardingType kTypes[] = {ShardingType::kDataParallel, ShardingType::kTableWise,
                                   ShardingType::kColumnWise,   ShardingType::kTableColumnWise,
                                   ShardingType::kRowWise,      ShardingType::kTableRowWise,
                                   ShardingType::kGrid};

CostModel model_of(std::int64_t trainers, std::int64_t batch, crds::Optimizer optimizer,
                   CostMethod method = CostMethod::kTorchrec) {
  return CostModel(ShardRequest{
      .topology = {.trainers = trainers}, .batch_size = batch, .optimizer = optimizer, .cost = method});
}

Kernel kernel_of(ShardingType type) {
  return type == ShardingType::kDataParallel ? Kernel::kDense : Kernel::kFused;
}

double time_of(const TableCost& cost, ShardingType type, std::int64_t columns) {
  return cost.times(type, kernel_of(type), columns).total();
}

Bytes memory_of(const TableCost& cost, ShardingType type, std::int64_t rows, std::int64_t columns) {
  return cost.held(type, kernel_of(type), rows, columns).card;
}

ShardingType type_named(const std::string& name) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [&](ShardingType type) { return name == name_of(type); });
  EXPECT_NE(found, std::end(kTypes)) << name;
  return found == std::end(kTypes) ? ShardingType::kTableWise : *found;
}

// The request of one row of torchrec_kernels.csv, with one table.
ShardRequest request_of(const testing::CsvRow& row) {
  static const std::map<std::string, Pipeline> kPipelines = {{"none", Pipeline::kNone},
                                                             {"sparse-dist", Pipeline::kSparseDist},
                                                             {"prefetch", Pipeline::kPrefetchSparseDist}};
  const Table table{.name = "t",
                    .rows = row.integer("rows"),
                    .dim = row.integer("dim"),
                    .lookups_per_sample = row.number("lookups"),
                    .element_bytes = row.integer("elementBytes"),
                    .weighted = row.integer("weighted") == 1};
  return {.tables = {table},
          .topology = {.trainers = row.integer("trainers"), .per_node = row.integer("perNode")},
          .batch_size = row.integer("batch"),
          .optimizer = *crds::parse_enum<crds::Optimizer>(row.text("optimizer")),
          .pipeline = kPipelines.at(row.text("pipeline")),
          .embeddings_at_peak = row.integer("outputsAtPeak") == 1,
          .cache_ratio = row.number("cacheRatio")};
}

TEST(SharderCost, EqualsTorchrecOnEveryKernelOptimizerWidthAndPipeline) {
  static const std::map<std::string, Kernel> kKernels = {{"dense", Kernel::kDense},
                                                         {"fused", Kernel::kFused},
                                                         {"fused_uvm", Kernel::kHost},
                                                         {"fused_uvm_caching", Kernel::kHostCached}};
  for (const testing::CsvRow& row : testing::csv_rows("sharder/torchrec_kernels.csv")) {
    const ShardRequest request = request_of(row);
    const TableCost cost(CostModel(request), request.tables.front());
    const ShardingType type = type_named(row.text("shardingType"));
    const Kernel kernel = kKernels.at(row.text("kernel"));
    const std::int64_t columns = row.integer("shardColumns");
    SCOPED_TRACE(row.text("rows") + " rows, " + name_of(type) + " " + name_of(kernel));
    EXPECT_EQ(row.text("kernel"), name_of(kernel));
    EXPECT_EQ(cost.rows_of(type, 0), row.integer("shardRows"));
    EXPECT_NEAR(cost.times(type, kernel, columns).total() / row.number("milliseconds"), 1, 1e-12);
    const Held held = cost.held(type, kernel, row.integer("shardRows"), columns);
    EXPECT_EQ(held.card.count, row.integer("gpuBytes"));
    EXPECT_EQ(held.host.count, row.integer("hostBytes"));
  }
}

TEST(SharderCost, EqualsTorchrecOnEveryGoldenOption) {
  const CostModel model = model_of(128, 1024, crds::Optimizer::kRowWiseAdagrad);
  for (const testing::CsvRow& row : testing::csv_rows("sharder/torchrec_options.csv")) {
    const Table table{.name = row.text("table"),
                      .rows = row.integer("rows"),
                      .dim = row.integer("dim"),
                      .lookups_per_sample = row.number("poolingFactor") * row.number("lookupFrequency")};
    const TableCost cost(model, table);
    const ShardingType type = type_named(row.text("shardingType"));
    const std::int64_t columns =
        type == ShardingType::kColumnWise ? table.dim / row.integer("shards") : table.dim;
    SCOPED_TRACE(table.name + " " + name_of(type));
    EXPECT_NEAR(time_of(cost, type, columns) / row.number("milliseconds"), 1, 1e-12);
    EXPECT_EQ(memory_of(cost, type, cost.rows_of(type, 0), columns).count, row.integer("bytes"));
  }
}

TEST(SharderCost, OptimizersHoldTheStateTheyAllocate) {
  const Table table{.name = "t", .rows = 1000, .dim = 64, .lookups_per_sample = 0};
  const std::int64_t weights = 1000 * 64 * 4;
  const auto held = [&](crds::Optimizer optimizer) {
    const TableCost cost(model_of(8, 512, optimizer), table);
    return memory_of(cost, ShardingType::kTableWise, table.rows, table.dim).count;
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
  const TableCost cost(model_of(16, 512, crds::Optimizer::kSGD), table);
  EXPECT_EQ(cost.row_block(ShardingType::kRowWise), 1);
  EXPECT_EQ(cost.rows_of(ShardingType::kRowWise, 9), 1);
  EXPECT_EQ(cost.rows_of(ShardingType::kRowWise, 10), 0);
  EXPECT_EQ(cost.row_block(ShardingType::kTableRowWise), 2);
  EXPECT_EQ(cost.rows_of(ShardingType::kTableRowWise, 4), 2);
  EXPECT_EQ(cost.rows_of(ShardingType::kTableRowWise, 5), 0);
  EXPECT_EQ(memory_of(cost, ShardingType::kRowWise, 0, 16).count, 0) << "an empty shard needs no buffers";
}

TEST(SharderCost, OneNodeExchangesOverNvlink) {
  const Table table{.name = "t", .rows = 1000, .dim = 128, .lookups_per_sample = 4};
  const auto time = [&](std::int64_t trainers) {
    const TableCost cost(model_of(trainers, 512, crds::Optimizer::kSGD), table);
    return time_of(cost, ShardingType::kTableWise, table.dim) / static_cast<double>(trainers);
  };
  EXPECT_NEAR(time(2), time(8), 1e-9);
  EXPECT_GT(time(16), 5 * time(8));
}

TEST(SharderCost, FewerBytesAnElementCostLess) {
  Table table{.name = "t", .rows = 1000, .dim = 128, .lookups_per_sample = 4, .element_bytes = 4};
  const CostModel model = model_of(16, 512, crds::Optimizer::kAdam);
  const TableCost wide(model, table);
  table.element_bytes = 2;
  const TableCost narrow(model, table);
  EXPECT_LT(time_of(narrow, ShardingType::kTableWise, 128), time_of(wide, ShardingType::kTableWise, 128));
  EXPECT_LT(memory_of(narrow, ShardingType::kTableWise, 1000, 128),
            memory_of(wide, ShardingType::kTableWise, 1000, 128));
}

TEST(SharderCost, AbsurdTablesSaturate) {
  const Table table{.name = "t", .rows = 1'000'000'000'000'000'000, .dim = 4096, .lookups_per_sample = 1e12};
  const TableCost cost(model_of(1024, std::int64_t{1} << 40, crds::Optimizer::kAdam), table);
  for (const ShardingType type : kTypes) {
    EXPECT_EQ(memory_of(cost, type, table.rows, table.dim), Bytes::max()) << name_of(type);
    EXPECT_TRUE(std::isfinite(time_of(cost, type, table.dim))) << name_of(type);
  }
}

TEST(SharderCost, StagesCountStateAsTheKernelsAllocateIt) {
  const std::int64_t rows = 1000;
  const auto state_of = [&](crds::Optimizer optimizer, std::int64_t element_bytes, std::int64_t columns) {
    const Table table{
        .name = "t", .rows = rows, .dim = 64, .lookups_per_sample = 3, .element_bytes = element_bytes};
    const auto held = [&](crds::Optimizer of) {
      const TableCost cost(model_of(8, 512, of, CostMethod::kStages), table);
      return memory_of(cost, ShardingType::kColumnWise, rows, columns).count;
    };
    return held(optimizer) - held(crds::Optimizer::kSGD);
  };
  // One fp32 a row for every column block, however narrow, and fp32 states of half-precision weights.
  EXPECT_EQ(state_of(crds::Optimizer::kRowWiseAdagrad, 4, 64), rows * 4);
  EXPECT_EQ(state_of(crds::Optimizer::kRowWiseAdagrad, 4, 16), rows * 4);
  EXPECT_EQ(state_of(crds::Optimizer::kRowWiseAdagrad, 2, 64), rows * 4);
  EXPECT_EQ(state_of(crds::Optimizer::kAdam, 2, 64), rows * 64 * 4 * 2);
  EXPECT_EQ(state_of(crds::Optimizer::kAdagrad, 1, 32), rows * 32 * 4);
}

TEST(SharderCost, AllocatedBytesComeWithEitherModelOfTime) {
  const Table table{
      .name = "t", .rows = 1000, .dim = 64, .lookups_per_sample = 0.25, .element_bytes = 2, .weighted = true};
  ShardRequest request{.topology = {.trainers = 16}, .batch_size = 512};
  const auto cost_of = [&](CostMethod method, bool allocated) {
    request.cost = method;
    request.allocated_bytes = allocated;
    return TableCost(CostModel(request), table);
  };
  const TableCost planner = cost_of(CostMethod::kTorchrec, false);
  const TableCost allocated = cost_of(CostMethod::kTorchrec, true);
  const TableCost stages = cost_of(CostMethod::kStages, false);
  for (const ShardingType type : kTypes) {
    for (const std::int64_t columns : {64, 16}) {
      EXPECT_EQ(time_of(allocated, type, columns), time_of(planner, type, columns)) << name_of(type);
      EXPECT_EQ(memory_of(allocated, type, 1000, columns), memory_of(stages, type, 1000, columns));
      EXPECT_GT(memory_of(allocated, type, 1000, columns), memory_of(planner, type, 1000, columns));
    }
  }
}

TEST(SharderCost, StagesExchangeARowOfEverySample) {
  const Table table{.name = "t", .rows = 1000, .dim = 64, .lookups_per_sample = 0.01};
  const auto exchange = [&](CostMethod method) {
    return TableCost(model_of(16, 512, crds::Optimizer::kSGD, method), table)
        .times(ShardingType::kTableWise, Kernel::kFused, 64)
        .exchange();
  };
  EXPECT_NEAR(exchange(CostMethod::kStages) / exchange(CostMethod::kTorchrec), 100, 1e-9);
}

TEST(SharderCost, EachFeatureOfASharedTableHasItsOwnPooledRows) {
  const Table alone{.name = "t", .rows = 1000, .dim = 128, .lookups_per_sample = 3};
  Table shared = alone;
  shared.features = 2;
  shared.lookups_per_sample = 6;
  const CostModel model = model_of(8, 512, crds::Optimizer::kSGD, CostMethod::kStages);
  const Bytes weights = Bytes{1000} * 128 * 4;
  EXPECT_EQ(memory_of(TableCost(model, shared), ShardingType::kTableWise, 1000, 128) - weights,
            (memory_of(TableCost(model, alone), ShardingType::kTableWise, 1000, 128) - weights) * 2);
  EXPECT_DOUBLE_EQ(
      TableCost(model, shared).times(ShardingType::kTableWise, Kernel::kFused, 128).exchange(),
      TableCost(model, alone).times(ShardingType::kTableWise, Kernel::kFused, 128).exchange() * 2);
}

}  // namespace
}  // namespace plimsoll::estimator
