#include "estimator/parallel/optimizer_support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

using crds::Optimizer;
using crds::ParallelStrategy;
using ::testing::HasSubstr;

Result<void> check(Optimizer optimizer, ParallelStrategy strategy, std::int64_t replicas,
                   std::int64_t tensor = 1, bool dtensors = false) {
  crds::Parallelism parallelism;
  parallelism.strategy = strategy;
  parallelism.tensor = tensor;
  return check_optimizer(optimizer, parallelism, replicas, dtensors);
}

// PyTorch 2.15 with bitsandbytes 0.50: "Operator bitsandbytes.optimizer_update_32bit.default does not have a
// sharding strategy registered".
TEST(OptimizerSupport, BitsandbytesCannotUpdateDTensors) {
  const Result<void> refused = check(Optimizer::kAdamW8bit, ParallelStrategy::kFSDP2, 8);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("AdamW8bit"));
  EXPECT_THAT(refused.error().message, HasSubstr("FSDP2"));
  EXPECT_FALSE(check(Optimizer::kLion8bit, ParallelStrategy::kAuto, 1, 2, true).ok());
  EXPECT_TRUE(check(Optimizer::kAdamW8bit, ParallelStrategy::kFSDP2, 1).ok());
  EXPECT_TRUE(check(Optimizer::kPagedAdamW8bit, ParallelStrategy::kFSDP, 8).ok());
}

TEST(OptimizerSupport, OffloadedStateIsNotOfBitsandbytes) {
  crds::Parallelism parallelism;
  parallelism.strategy = ParallelStrategy::kZeRO2;
  parallelism.offload = crds::Offload::kOptimizer;
  const Result<void> refused = check_optimizer(Optimizer::kAdamW8bit, parallelism, 8, false);
  ASSERT_FALSE(refused.ok()) << "it was accepted and counted as fp32 state";
  EXPECT_THAT(refused.error().message, HasSubstr("parallelism.offload"));
  EXPECT_TRUE(check_optimizer(Optimizer::kAdamW, parallelism, 8, false).ok());
}

TEST(OptimizerSupport, MuonNeedsWholeMatrices) {
  for (const ParallelStrategy strategy : {ParallelStrategy::kFSDP, ParallelStrategy::kFSDP2,
                                          ParallelStrategy::kZeRO2, ParallelStrategy::kZeRO3}) {
    const Result<void> refused = check(Optimizer::kMuon, strategy, 2);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr("whole matrices"));
    EXPECT_TRUE(check(Optimizer::kAdamW, strategy, 2).ok());
  }
  EXPECT_FALSE(check(Optimizer::kMuon, ParallelStrategy::kAuto, 1, 2).ok());
  EXPECT_TRUE(check(Optimizer::kMuon, ParallelStrategy::kZeRO1, 4).ok());
}

}  // namespace
}  // namespace plimsoll::estimator
