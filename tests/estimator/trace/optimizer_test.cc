#include "estimator/trace/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace plimsoll::estimator {
namespace {

using crds::Optimizer;
using crds::OptimizerImplementation;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr TorchVersion kOld = 113;
constexpr TorchVersion kNew = 215;

// A matrix of 64 x 256 and a vector of 256, both of fp32.
const std::vector<SteppedParameter> kParameters = {
    {.id = 0, .bytes = 64_KiB, .elements = 64 * 256, .rows = 64, .columns = 256, .gradient = 64_KiB},
    {.id = 1, .bytes = 1_KiB, .elements = 256, .rows = 1, .columns = 0, .gradient = 1_KiB}};

// The most bytes that a step has allocated at one time; fails when it frees a block twice, or not at all.
class PeakLedger final : public StepLedger {
 public:
  BlockId allocate(std::size_t parameter, Bytes bytes) override {
    EXPECT_LT(parameter, kParameters.size());
    live_.emplace(next_, bytes);
    now_ += bytes;
    peak = std::max(peak, now_);
    return next_++;
  }
  void release(BlockId block) override {
    const auto found = live_.find(block);
    ASSERT_NE(found, live_.end());
    now_ -= found->second;
    live_.erase(found);
  }
  ~PeakLedger() override { EXPECT_THAT(live_, IsEmpty()); }

  Bytes peak;

 private:
  std::map<BlockId, Bytes> live_;
  BlockId next_ = 1;
  Bytes now_;
};

OptimizerRun run_of(Optimizer kind, Device device, TorchVersion version,
                    OptimizerImplementation implementation = OptimizerImplementation::kDefault) {
  const Result<OptimizerRun> run = optimizer_run(kind, implementation, device, version);
  EXPECT_TRUE(run.ok());
  return run ? *run : OptimizerRun{};
}

Bytes peak_of_step(const OptimizerRun& run) {
  PeakLedger ledger;
  optimizer_step(run, kParameters, ledger);
  return ledger.peak;
}

TEST(Optimizer, TheDefaultIsForeachOnCudaSinceTorch2) {
  EXPECT_EQ(run_of(Optimizer::kAdam, Device::kCuda, kNew).implementation, OptimizerImplementation::kForEach);
  EXPECT_EQ(run_of(Optimizer::kAdam, Device::kCuda, kOld).implementation,
            OptimizerImplementation::kSingleTensor);
  EXPECT_EQ(run_of(Optimizer::kAdam, Device::kCpu, kNew).implementation,
            OptimizerImplementation::kSingleTensor);
}

// torch/optim/_adafactor.py takes foreach=None for False: its peak on a GPU was 33 to 40 % too high.
TEST(Optimizer, AdafactorsDefaultIsOneTensorAtATime) {
  const OptimizerRun run = run_of(Optimizer::kAdafactor, Device::kCuda, kNew);
  EXPECT_EQ(run.implementation, OptimizerImplementation::kSingleTensor);
  EXPECT_EQ(
      run_of(Optimizer::kAdafactor, Device::kCuda, kNew, OptimizerImplementation::kForEach).implementation,
      OptimizerImplementation::kForEach);
  // The matrix's update and its mean of columns (256 x 4 B), while the vector's square and update are made.
  EXPECT_EQ(peak_of_step(run), 64_KiB + 1_KiB + 1_KiB + 1_KiB);
}

TEST(Optimizer, ForeachAllocatesItsListsOfAllParametersAtOnce) {
  EXPECT_EQ(peak_of_step(run_of(Optimizer::kAdam, Device::kCuda, kNew)), 65_KiB);
  EXPECT_EQ(peak_of_step(run_of(Optimizer::kAdam, Device::kCpu, kOld, OptimizerImplementation::kForEach)),
            130_KiB);
  EXPECT_EQ(peak_of_step(run_of(Optimizer::kSGD, Device::kCuda, kNew)), Bytes{});
}

TEST(Optimizer, AdamsRootAndQuotientAreLiveTogether) {
  EXPECT_EQ(peak_of_step(run_of(Optimizer::kAdam, Device::kCpu, kNew)), 128_KiB);
}

TEST(Optimizer, AFusedStepHasNoTemporaries) {
  EXPECT_EQ(peak_of_step(run_of(Optimizer::kAdamW, Device::kCuda, kNew, OptimizerImplementation::kFused)),
            Bytes{});
}

TEST(Optimizer, WhatHasNoFusedVersionIsNamed) {
  const Result<OptimizerRun> run =
      optimizer_run(Optimizer::kRMSprop, OptimizerImplementation::kFused, Device::kCuda, kNew);
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(run.error().message, HasSubstr("no fused RMSprop"));
  EXPECT_FALSE(optimizer_run(Optimizer::kAdam, OptimizerImplementation::kFused, Device::kCpu, kOld).ok());
}

TEST(Optimizer, StateIsThatOfTheDefinition) {
  const auto state = [](Optimizer kind, std::size_t parameter) {
    return optimizer_state(run_of(kind, Device::kCuda, kNew), kParameters[parameter]);
  };
  EXPECT_THAT(state(Optimizer::kSGD, 0), IsEmpty());
  EXPECT_THAT(state(Optimizer::kMomentum, 0), ElementsAre(64_KiB));
  EXPECT_THAT(state(Optimizer::kAdam, 0), ElementsAre(64_KiB, 64_KiB));
  // A number for each row and for each column; a vector is not factored.
  EXPECT_THAT(state(Optimizer::kAdafactor, 0), ElementsAre(Bytes{64 * 4}, Bytes{256 * 4}));
  EXPECT_THAT(state(Optimizer::kAdafactor, 1), ElementsAre(1_KiB));
  // 16,384 elements in blocks of 256; fewer than 4,096 elements stay fp32.
  EXPECT_THAT(state(Optimizer::kAdam8bit, 0), ElementsAre(16_KiB, 16_KiB, Bytes{64 * 4}, Bytes{64 * 4}));
  EXPECT_THAT(state(Optimizer::kAdam8bit, 1), ElementsAre(1_KiB, 1_KiB));
}

TEST(Optimizer, TheStepCountIsOnTheCpuUnlessAKernelReadsIt) {
  const auto blocks = [](Device device, OptimizerImplementation implementation) {
    return optimizer_state(run_of(Optimizer::kAdam, device, kNew, implementation), kParameters[0]).size();
  };
  EXPECT_EQ(blocks(Device::kCuda, OptimizerImplementation::kForEach), 2U);
  EXPECT_EQ(blocks(Device::kCuda, OptimizerImplementation::kFused), 3U);
  EXPECT_EQ(blocks(Device::kCpu, OptimizerImplementation::kSingleTensor), 3U);
}

}  // namespace
}  // namespace plimsoll::estimator
