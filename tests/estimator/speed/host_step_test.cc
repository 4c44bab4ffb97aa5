#include "estimator/speed/host_step.h"

#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

using enum crds::ParallelStrategy;
using crds::Offload;

constexpr double kParameters = 1e9;
constexpr double kLink = 50e9;
constexpr double kCopy = kParameters / kLink;  // seconds of one byte of each parameter

crds::TrainingSpec training_of(crds::ParallelStrategy strategy, Offload offload) {
  crds::TrainingSpec training;
  training.optimizer = crds::Optimizer::kAdam;
  training.parallelism.strategy = strategy;
  training.parallelism.offload = offload;
  return training;
}

HostStep step_of(const crds::TrainingSpec& training, double computation = 0) {
  return host_step(training, {.parameters = kParameters,
                              .width = 2,
                              .forward = computation,
                              .backward = computation,
                              .link = kLink});
}

TEST(HostStep, NothingIsOffloadedByDefault) {
  const HostStep step = step_of(training_of(kMegatron, Offload::kNone));
  EXPECT_EQ(step.update + step.transfers, 0);
}

TEST(HostStep, TheUpdateRisesWithTheOptimizersState) {
  crds::TrainingSpec training = training_of(kZeRO2, Offload::kOptimizer);
  const double adam = step_of(training).update;
  training.optimizer = crds::Optimizer::kSGD;
  EXPECT_NEAR(step_of(training).update / adam, 3.0 / 7, 1e-6) << "3 values are read and written, not 7";
}

TEST(HostStep, MegatronCopiesGradientsAndParametersInFp32BesideNothing) {
  crds::TrainingSpec training = training_of(kMegatron, Offload::kOptimizer);
  EXPECT_DOUBLE_EQ(step_of(training, 10).transfers, 8 * kCopy);
  training.parallelism.overlap_offload = true;
  EXPECT_EQ(step_of(training, 10).transfers, 0) << "the update takes longer than the copies";
}

TEST(HostStep, DeepSpeedCopiesHalvesAndHidesTheGradients) {
  const crds::TrainingSpec training = training_of(kZeRO2, Offload::kOptimizer);
  EXPECT_DOUBLE_EQ(step_of(training, 10).transfers, 2 * kCopy);
  EXPECT_DOUBLE_EQ(step_of(training, 0).transfers, 4 * kCopy);
}

TEST(HostStep, Fsdp2CopiesItsShardsForEachPassOfEachMicroBatch) {
  crds::TrainingSpec training = training_of(kFSDP2, Offload::kParameters);
  training.gradient_accumulation = 3;
  EXPECT_DOUBLE_EQ(step_of(training, 0).transfers, 3 * (4 + 4) * kCopy);
  EXPECT_EQ(step_of(training, 10).transfers, 0) << "computation hides them";
}

}  // namespace
}  // namespace plimsoll::estimator
