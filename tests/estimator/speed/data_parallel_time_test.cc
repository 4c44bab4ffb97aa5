#include "estimator/speed/data_parallel_time.h"

#include <gtest/gtest.h>

#include <utility>

#include "estimator/catalog/gpu_catalog.h"

namespace plimsoll::estimator {
namespace {

// Two layers of 100 million parameters each, in 16 bits.
StageTime stage_of(double seconds) {
  StageTime stage;
  for (std::int32_t layer = 0; layer < 2; ++layer) {
    stage.units[layer] = {
        .forward = seconds, .backward = 2 * seconds, .parameters = 1e8, .trained = 1e8, .width = 2};
  }
  return stage;
}

DataParallelTime time_of(crds::ParallelStrategy strategy, double seconds, std::int64_t trainers,
                         bool half_gradients = false) {
  crds::TrainingSpec training;
  training.precision = crds::Precision::kBF16Mixed;
  training.parallelism.strategy = strategy;
  const KernelTimes times = *KernelTimes::of(*GpuCatalog::built_in().find("A100-80GB"), training);
  return data_parallel_time(stage_of(seconds), training,
                            {.shards = group_of(trainers, 1, 8),
                             .links = {.intra = 300e9, .inter = 25e9},
                             .half_gradients = half_gradients},
                            times);
}

using enum crds::ParallelStrategy;

TEST(DataParallelTime, OneTrainerExchangesNothing) {
  EXPECT_DOUBLE_EQ(time_of(kDDP, 0.1, 1).exposed, 0);
  EXPECT_DOUBLE_EQ(time_of(kFSDP2, 0.1, 1).exposed, 0);
}

TEST(DataParallelTime, ComputationHidesExchanges) {
  EXPECT_GT(time_of(kFSDP2, 1e-6, 64).exposed, 1.2 * time_of(kFSDP2, 0.1, 64).exposed);
  EXPECT_GT(time_of(kDDP, 1e-6, 64).exposed, 1.2 * time_of(kDDP, 0.1, 64).exposed);
}

TEST(DataParallelTime, MegatronHidesExchangesWhenItIsTold) {
  const StageTime stage = stage_of(0.1);
  crds::TrainingSpec training;
  training.parallelism.strategy = kMegatron;
  const KernelTimes times = *KernelTimes::of(*GpuCatalog::built_in().find("A100-80GB"), training);
  DataParallelGroups groups{.shards = group_of(64, 1, 8), .links = {.intra = 300e9, .inter = 25e9}};
  const double exposed = data_parallel_time(stage, training, groups, times).exposed;
  groups.megatron_overlaps = true;
  EXPECT_NEAR(data_parallel_time(stage, training, groups, times).exposed,
              occupied_share(groups.shards) * exposed, 1e-9);
}

TEST(DataParallelTime, MegatronReducesGradientsOfFp16AsTheyAre) {
  EXPECT_LT(time_of(kMegatron, 1e-6, 64, true).exposed, 0.8 * time_of(kMegatron, 1e-6, 64).exposed);
  EXPECT_DOUBLE_EQ(time_of(kDDP, 0.1, 64, true).exposed, time_of(kDDP, 0.1, 64).exposed);
}

TEST(DataParallelTime, ExpertsAreExchangedByThoseThatHoldThem) {
  StageTime stage = stage_of(1e-6);
  crds::TrainingSpec training;
  training.parallelism.strategy = kMegatron;
  const KernelTimes times = *KernelTimes::of(*GpuCatalog::built_in().find("A100-80GB"), training);
  const DataParallelGroups groups{
      .shards = group_of(64, 1, 8), .experts = group_of(8, 8, 8), .links = {.intra = 300e9, .inter = 25e9}};
  const DataParallelTime dense = data_parallel_time(stage, training, groups, times);
  for (auto& [id, unit] : stage.units) {
    std::swap(unit.parameters, unit.expert_parameters);
    std::swap(unit.trained, unit.expert_trained);
  }
  const DataParallelTime experts = data_parallel_time(stage, training, groups, times);
  EXPECT_GT(experts.exposed, 5 * dense.exposed) << "one ring through an adapter instead of eight";
  EXPECT_GT(experts.optimizer, 5 * dense.optimizer) << "8 share it instead of 64";
}

TEST(DataParallelTime, ShardedOptimizersStepOnTheirShare) {
  EXPECT_NEAR(time_of(kDDP, 0.1, 8).optimizer, 8 * time_of(kFSDP2, 0.1, 8).optimizer, 1e-6);
  EXPECT_LT(time_of(kMegatron, 0.1, 8).optimizer, time_of(kZeRO1, 0.1, 8).optimizer) << "one kernel";
}

TEST(DataParallelTime, WhatOnlyTheOptimizerShardsIsGatheredAfterItsStep) {
  EXPECT_GT(time_of(kZeRO1, 0.1, 8).exposed, time_of(kDDP, 0.1, 8).exposed);
}

}  // namespace
}  // namespace plimsoll::estimator
