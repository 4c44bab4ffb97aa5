#include "estimator/speed/graph_time.h"

#include <gtest/gtest.h>

#include "estimator/catalog/gpu_catalog.h"
#include "estimator/speed/iteration_time.h"
#include "tests/estimator/graph_files.h"

namespace plimsoll::estimator {
namespace {

using testing::gpt;

const Trace& trace() {
  return gpt().traces.front();
}

StageTime time_of(std::int64_t batch, crds::ActivationCheckpointing checkpointing) {
  const Result<TraceShapes> shapes = TraceShapes::at(trace(), batch);
  const KernelTimes times = *KernelTimes::of(*GpuCatalog::built_in().find("A100-80GB"), crds::TrainingSpec());
  return graph_time(trace(), *shapes, times, {.checkpointing = checkpointing});
}

double of(const StageTime& stage, Spent spent) {
  return stage.spent[static_cast<std::size_t>(spent)];
}

TEST(GraphTime, CountsTheFlopsOfBothPasses) {
  constexpr std::int64_t kBatch = 2;
  const Result<TraceShapes> shapes = TraceShapes::at(trace(), kBatch);
  double flops = 0;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(trace().operators.size()); ++i) {
    flops += work_of(trace(), *shapes, i).flops;
  }
  constexpr double kTokens = kBatch * 8;
  constexpr double kWeights =
      4 * (4 * 16 * 16 + 2 * 16 * 64) + 16 * 40;          // of four blocks and the output layer
  constexpr double kScores = 4 * kBatch * 4 * 8 * 8 * 4;  // products of scores with widths, of four blocks
  EXPECT_DOUBLE_EQ(flops, 6 * kTokens * kWeights + 6 * 2 * kScores);
}

// One call of attention on the same tensor as queries, keys and values: [1, 4, 2048, 64].
Trace attention(const char* name, std::int32_t inputs, Attributes attributes) {
  Trace trace;
  trace.operator_names = {name};
  trace.dtypes = {"bfloat16"};
  trace.modules = {""};
  trace.attributes = {std::move(attributes)};
  for (const std::int64_t size : {1, 4, 2048, 64}) {
    trace.counts.push_back(Count::constant(size));
  }
  trace.layouts.push_back({.shape = {.begin = 0, .size = 4}, .strides = {}, .contiguous = true});
  const Count bytes = Count::constant(std::int64_t{4} * 2048 * 64 * 2);
  trace.storages.push_back({.bytes = bytes});
  trace.storages.push_back({.bytes = bytes, .allocated_at = 0});
  trace.tensors.push_back({.storage = 0, .layout = 0, .dtype = 0});
  trace.tensors.push_back({.storage = 1, .layout = 0, .dtype = 0});
  trace.operands.assign(static_cast<std::size_t>(inputs), 0);
  trace.operands.push_back(1);
  trace.operators.push_back({.name = 0,
                             .module = 0,
                             .attributes = 0,
                             .inputs = {.begin = 0, .size = inputs},
                             .outputs = {.begin = inputs, .size = 1}});
  return trace;
}

double flops_of(const Trace& trace) {
  const Result<TraceShapes> shapes = TraceShapes::at(trace, 1);
  return work_of(trace, *shapes, 0).flops;
}

// It counted whole, as without a mask.
TEST(GraphTime, CausalAttentionSkipsHalf) {
  constexpr const char* kForward = "aten::_scaled_dot_product_flash_attention";
  constexpr const char* kBackward = "aten::_scaled_dot_product_flash_attention_backward";
  const double whole = 4.0 * 4 * 2048 * 2048 * 64;
  EXPECT_DOUBLE_EQ(flops_of(attention(kForward, 3, {})), whole);
  EXPECT_DOUBLE_EQ(flops_of(attention(kForward, 3, {{"is_causal", Count::constant(0)}})), whole);
  EXPECT_DOUBLE_EQ(flops_of(attention(kForward, 3, {{"is_causal", Count::constant(1)}})), whole / 2);
  EXPECT_DOUBLE_EQ(flops_of(attention(kBackward, 4, {{"is_causal", Count::constant(1)}})), 2.5 * whole / 2);
  EXPECT_DOUBLE_EQ(flops_of(attention(kForward, 3, {{"is_causal", std::string("yes")}})), whole)
      << "no boolean";
}

TEST(GraphTime, PartsAreThoseOfTheUnits) {
  const StageTime stage = time_of(4, crds::ActivationCheckpointing::kFull);
  double units = 0;
  double parameters = 0;
  for (const auto& [id, unit] : stage.units) {
    units += unit.forward + unit.backward;
    parameters += unit.parameters;
  }
  EXPECT_NEAR(stage.seconds() - of(stage, Spent::kLaunch), units, 1e-12);
  EXPECT_GE(stage.units.size(), 5U) << "four blocks and the rest";
  EXPECT_GT(parameters, 4 * (4 * 16 * 16 + 2 * 16 * 64));
}

TEST(GraphTime, CheckpointingRunsTheBlocksForwardAgain) {
  const StageTime kept = time_of(4, crds::ActivationCheckpointing::kNone);
  const StageTime recomputed = time_of(4, crds::ActivationCheckpointing::kFull);
  EXPECT_DOUBLE_EQ(of(kept, Spent::kRecompute), 0);
  EXPECT_GT(of(recomputed, Spent::kRecompute), 0);
  EXPECT_LT(of(recomputed, Spent::kRecompute), of(kept, Spent::kMatrix) + of(kept, Spent::kMemory));
}

TEST(GraphTime, TheCpuDeterminesASmallModel) {
  const StageTime stage = time_of(2, crds::ActivationCheckpointing::kNone);
  EXPECT_GT(of(stage, Spent::kLaunch), 0.5 * stage.seconds());
}

class GraphIteration : public ::testing::Test {
 protected:
  GraphIteration() {
    training_.batch_size_per_trainer = 4;
    request_.job = {
        .model = &model_, .training = &training_, .graph = &gpt(), .gpu = catalog_.find("A100-80GB")};
    request_.job.trainers = 8;
    request_.job.device = Device::kCpu;  // the file has a trace of the CPU alone
  }

  crds::ModelSpec model_;
  crds::TrainingSpec training_;
  GpuCatalog catalog_ = GpuCatalog::built_in();
  SpeedRequest request_;
};

TEST_F(GraphIteration, HasAll) {
  for (const crds::ParallelStrategy strategy :
       {crds::ParallelStrategy::kDDP, crds::ParallelStrategy::kFSDP2, crds::ParallelStrategy::kZeRO1}) {
    training_.parallelism.strategy = strategy;
    const Result<IterationTime> time = iteration_time(request_);
    ASSERT_TRUE(time.ok()) << to_string(time.error());
    EXPECT_NEAR(time->samples_per_second, 8 * 4 / time->seconds, 1e-6);
  }
}

TEST_F(GraphIteration, WhatIsNotKnownIsSaid) {
  training_.activation_checkpointing = crds::ActivationCheckpointing::kSelective;
  const Result<IterationTime> selective = iteration_time(request_);
  ASSERT_FALSE(selective.ok());
  EXPECT_EQ(selective.error().code, ErrorCode::kUnsupported);
  training_.activation_checkpointing = crds::ActivationCheckpointing::kNone;
  training_.parallelism.tensor = 2;
  EXPECT_EQ(iteration_time(request_).error().code, ErrorCode::kUnsupported);
  training_.parallelism.tensor = 1;
  request_.job.device = Device::kCuda;
  EXPECT_FALSE(iteration_time(request_).ok()) << "no trace of a GPU";
}

}  // namespace
}  // namespace plimsoll::estimator
