// Estimates of parallel training on the CPU against real runs over gloo: DeepSpeed's ZeRO
// (tests/accuracy/parallel/measure_deepspeed.py), Llama on meshes of ranks (measure_meshes.py),
// Mixtral whose experts ranks share (measure_experts.py), and adapters of a Llama that ranks shard (measure_adapters.py).
#include <gtest/gtest.h>

#include <cmath>

#include "estimator/estimate/estimate.h"
#include "tests/estimator/data_files.h"

namespace plimsoll::estimator {
namespace {

// In percent of what was measured beside `constant`.
double error_of(const testing::MeasuredRun& run, Bytes constant = {}) {
  const Result<Estimate> estimate = estimate_memory({.model = &run.spec.model,
                                                     .training = &run.spec.training,
                                                     .trainers = run.trainers,
                                                     .device = Device::kCpu});
  if (!estimate) {
    ADD_FAILURE() << run.name << ": " << to_string(estimate.error());
    return 0;
  }
  const std::int64_t bytes = estimate->peak.allocated.count;
  const double error =
      100.0 * static_cast<double>(bytes - run.bytes) / static_cast<double>(run.bytes - constant.count);
  std::printf("%-34s trainers %ld  measured %10ld  estimated %10ld  error %+6.3f%%  peak in %s\n",
              run.name.c_str(), static_cast<long>(run.trainers), static_cast<long>(run.bytes),
              static_cast<long>(bytes), error, estimate->peak_phase.c_str());
  return error;
}

TEST(ParallelTruth, TheEstimateMeetsDeepSpeed) {
  for (const testing::MeasuredRun& run : testing::measured_runs("estimate/deepspeed_torch2.yaml")) {
    const std::int64_t width = run.spec.training.precision == crds::Precision::kFP32 ? 4 : 2;
    // By default most of what these models take.
    const Bytes bucket = Bytes{run.spec.training.parallelism.reduce_bucket_size} * width;
    const bool zero3 = run.spec.training.parallelism.strategy == crds::ParallelStrategy::kZeRO3;
    EXPECT_LT(std::abs(error_of(run, bucket)), zero3 ? 2 : 0.1) << run.name;
  }
}

TEST(ParallelTruth, TheEstimateMeetsMeshes) {
  for (const testing::MeasuredRun& run : testing::measured_runs("estimate/meshes_torch2.yaml")) {
    EXPECT_LT(std::abs(error_of(run)), 0.1) << run.name;
  }
}

TEST(ParallelTruth, TheEstimateMeetsSharedExperts) {
  for (const testing::MeasuredRun& run : testing::measured_runs("estimate/experts_torch2.yaml")) {
    EXPECT_LT(std::abs(error_of(run)), 2) << run.name;
  }
}

// Frozen parameters counted whole on each rank: an 8B model took 15 GiB on each of 64. With ZeRO-3 they stay gathered in the
// estimate of a model as small as these, where DeepSpeed frees after forward what backward does not read.
TEST(ParallelTruth, TheEstimateMeetsShardedAdapters) {
  for (const testing::MeasuredRun& run : testing::measured_runs("estimate/sharded_adapters_torch2.yaml")) {
    const double error = error_of(run);
    using enum crds::ParallelStrategy;
    const crds::ParallelStrategy strategy = run.spec.training.parallelism.strategy;
    EXPECT_GT(error, -0.4) << run.name;
    EXPECT_LT(error, strategy == kZeRO3 ? 7 : strategy == kFSDP ? 2 : 0.2) << run.name;
  }
}

}  // namespace
}  // namespace plimsoll::estimator
