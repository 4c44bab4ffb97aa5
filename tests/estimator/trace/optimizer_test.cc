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
    {.id = 0,
     .bytes = 64_KiB,
     .elements = 64 * 256,
     .rows = 64,
     .columns = 256,
     .dimensions = 2,
     .gradient = 64_KiB},
    {.id = 1, .bytes = 1_KiB, .elements = 256, .rows = 1, .columns = 0, .dimensions = 1, .gradient = 1_KiB}};

// The most bytes that a step has allocated at one time; fails when it frees a block twice, or not at all.
class PeakLedger final : public StepLedger {
 public:
  BlockId allocate(std::size_t, Bytes bytes) override {
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

Bytes peak_of_step(const OptimizerRun& run, const std::vector<SteppedParameter>& parameters = kParameters) {
  PeakLedger ledger;
  optimizer_step(run, parameters, ledger);
  return ledger.peak;
}

std::vector<SteppedParameter> fp32_parameters(
    const std::vector<std::pair<std::int64_t, std::int64_t>>& shapes) {
  std::vector<SteppedParameter> parameters;
  for (const auto& [rows, columns] : shapes) {
    parameters.push_back({.id = parameters.size(),
                          .bytes = Bytes{rows * columns * 4},
                          .elements = rows * columns,
                          .rows = rows,
                          .columns = rows == 1 ? 0 : columns,
                          .dimensions = rows == 1 ? 1 : 2,
                          .gradient = Bytes{rows * columns * 4}});
  }
  return parameters;
}

Bytes state_of(const OptimizerRun& run, const std::vector<SteppedParameter>& parameters) {
  Bytes sum;
  for (const SteppedParameter& parameter : parameters) {
    for (const Bytes bytes : optimizer_state(run, parameter)) {
      sum += bytes;
    }
  }
  return sum;
}

// tests/accuracy/optimizer_steps.py's parameters, and the state and peak that it prints (without the twelve
// bytes of scalars that some steps take).
struct Measured {
  Optimizer kind;
  TorchVersion version;
  OptimizerImplementation implementation;
  std::int64_t state;
  std::int64_t peak;
};
constexpr auto kSingle = OptimizerImplementation::kSingleTensor;
constexpr auto kLists = OptimizerImplementation::kForEach;

TEST(Optimizer, StatesAndStepsAreAsPyTorchsWereMeasured) {
  const std::vector<SteppedParameter> parameters =
      fp32_parameters({{1, 1000}, {30, 100}, {20, 100}, {8, 500}});
  const Measured measured[] = {
      {Optimizer::kAdamW, kNew, kSingle, 80016, 40000},
      {Optimizer::kAdamW, kNew, kLists, 80016, 40000},
      {Optimizer::kAdagrad, kNew, kSingle, 40016, 24000},
      {Optimizer::kAdagrad, kOld, kLists, 40016, 120000},
      {Optimizer::kRMSprop, kNew, kSingle, 40016, 24000},
      {Optimizer::kRMSprop, kOld, kSingle, 40000, 24000},
      {Optimizer::kAdafactor, kNew, kSingle, 7048, 30000},
      {Optimizer::kNAdam, kNew, kSingle, 80032, 40000},
      {Optimizer::kNAdam, kNew, kLists, 80032, 40000},
      {Optimizer::kNAdam, kOld, kSingle, 80032, 40000},
      {Optimizer::kNAdam, kOld, kLists, 80032, 80000},
      {Optimizer::kRAdam, kNew, kSingle, 80016, 80000},
      {Optimizer::kRAdam, kNew, kLists, 80016, 40000},
      {Optimizer::kRAdam, kOld, kSingle, 80016, 72000},
      {Optimizer::kRAdam, kOld, kLists, 80016, 120000},
      {Optimizer::kAdadelta, kNew, kSingle, 80016, 40000},
      {Optimizer::kAdadelta, kNew, kLists, 80016, 80000},
      {Optimizer::kAdadelta, kOld, kSingle, 80000, 40000},
      {Optimizer::kAdadelta, kOld, kLists, 80000, 80000},
      {Optimizer::kAdamax, kNew, kSingle, 80016, 16000},
      {Optimizer::kAdamax, kNew, kLists, 80016, 40000},
      {Optimizer::kAdamax, kOld, kSingle, 80016, 64000},
      {Optimizer::kAdamax, kOld, kLists, 80016, 64000},
      {Optimizer::kLion, kNew, kSingle, 40000, 32000},
  };
  for (const Measured& each : measured) {
    const OptimizerRun run = run_of(each.kind, Device::kCpu, each.version, each.implementation);
    SCOPED_TRACE(std::string(crds::name_of(each.kind)) + " " + crds::name_of(each.implementation) + " " +
                 std::to_string(each.version));
    EXPECT_EQ(state_of(run, parameters), Bytes{each.state});
    EXPECT_NEAR(static_cast<double>(peak_of_step(run, parameters).count), static_cast<double>(each.peak), 48);
  }
}

// Measured as above, with bitsandbytes 0.50: the vector of 1,000 elements keeps states of 32 bits.
TEST(Optimizer, StatesAndStepsAreAsBitsandbytesWereMeasured) {
  const std::vector<SteppedParameter> parameters =
      fp32_parameters({{1, 1000}, {100, 300}, {400, 100}, {200, 300}});
  // Beside the states, the script counts the two maps of 256 values for each of the three quantised ones.
  constexpr std::int64_t kMap = 3 * 1024;
  const Measured measured[] = {
      {Optimizer::kAdam8bit, kNew, kSingle, 278224 - 2 * kMap, 1200000},
      {Optimizer::kAdamW8bit, kNew, kSingle, 278224 - 2 * kMap, 1200000},
      {Optimizer::kPagedAdamW8bit, kNew, kSingle, 278224 - 2 * kMap, 1200000},
      {Optimizer::kPagedAdamW, kNew, kSingle, 1048000, 720000},
      {Optimizer::kLion8bit, kNew, kSingle, 139112 - kMap, 1200000},
      {Optimizer::kPagedLion8bit, kNew, kSingle, 139112 - kMap, 1200000},
  };
  for (const Measured& each : measured) {
    SCOPED_TRACE(crds::name_of(each.kind));
    EXPECT_EQ(state_of(run_of(each.kind, Device::kCpu, kNew), parameters), Bytes{each.state});
    EXPECT_EQ(peak_of_step(run_of(each.kind, Device::kCpu, kNew), parameters), Bytes{each.peak});
    EXPECT_EQ(peak_of_step(run_of(each.kind, Device::kCuda, kNew), parameters), Bytes{})
        << "CUDA's kernels allocate nothing";
  }
}

// bitsandbytes/optim/optimizer.py, get_state_buffer: from 100,000 elements on, and on CUDA alone.
TEST(Optimizer, PagedStateIsInManagedMemory) {
  const std::vector<SteppedParameter> parameters = fp32_parameters({{100, 999}, {1000, 1000}});
  const OptimizerRun run = run_of(Optimizer::kPagedAdamW8bit, Device::kCuda, kNew);
  EXPECT_EQ(managed_state(run, parameters[0]), Bytes{});
  EXPECT_EQ(managed_state(run, parameters[1]), Bytes{2'000'000});
  EXPECT_THAT(optimizer_state(run, parameters[1]), ElementsAre(Bytes{3907 * 4}, Bytes{3907 * 4}));
  EXPECT_EQ(managed_state(run_of(Optimizer::kPagedAdamW, Device::kCuda, kNew), parameters[1]),
            Bytes{8'000'000});
  EXPECT_EQ(managed_state(run_of(Optimizer::kPagedAdamW, Device::kCpu, kNew), parameters[1]), Bytes{});
  EXPECT_EQ(managed_state(run_of(Optimizer::kAdamW8bit, Device::kCuda, kNew), parameters[1]), Bytes{});
}

TEST(Optimizer, MuonTakesMatricesAndAdamWTheRest) {
  const OptimizerRun run = run_of(Optimizer::kMuon, Device::kCuda, kNew);
  EXPECT_THAT(optimizer_state(run, kParameters[0]), ElementsAre(64_KiB));
  EXPECT_THAT(optimizer_state(run, kParameters[1]), ElementsAre(1_KiB, 1_KiB));
  // The momentum in fp32; two factors in bf16, the old and the new one; two Gram matrices of 64 x 64.
  EXPECT_EQ(peak_of_step(run), 64_KiB + 2 * 32_KiB + 2 * 8_KiB);
  const SteppedParameter kernel = {
      .bytes = 64_KiB, .elements = 64 * 256, .rows = 64, .columns = 64, .dimensions = 4, .gradient = 64_KiB};
  EXPECT_EQ(optimizer_state(run, kernel).size(), 2U) << "torch.optim.Muon refuses what is no matrix";
}

TEST(Optimizer, WhatTheInstalledPyTorchLacksIsRefused) {
  const Result<OptimizerRun> muon =
      optimizer_run(Optimizer::kMuon, OptimizerImplementation::kDefault, Device::kCuda, kOld);
  ASSERT_FALSE(muon.ok());
  EXPECT_THAT(muon.error().message, HasSubstr("since 2.9"));
  for (const Optimizer kind : {Optimizer::kAdam8bit, Optimizer::kLion, Optimizer::kPagedAdamW}) {
    const Result<OptimizerRun> run =
        optimizer_run(kind, OptimizerImplementation::kForEach, Device::kCuda, kNew);
    ASSERT_FALSE(run.ok()) << "it was accepted and ignored";
    EXPECT_THAT(run.error().message, HasSubstr("no foreach version of"));
    EXPECT_FALSE(optimizer_run(kind, OptimizerImplementation::kFused, Device::kCuda, kNew).ok());
  }
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
