#include "estimator/estimate/equal_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/budget.h"
#include "estimator/estimate/peak.h"

namespace plimsoll::estimator {
namespace {

using crds::ActivationCheckpointing;
using crds::ParallelStrategy;

struct Case {
  const char* name;
  ParallelStrategy strategy = ParallelStrategy::kAuto;
  ActivationCheckpointing checkpointing = ActivationCheckpointing::kNone;
  crds::Optimizer optimizer = crds::Optimizer::kAdamW;
  std::int64_t vocab = 512;
  std::int64_t sequence = 64;
  std::int64_t accumulation = 1;
  std::int64_t trainers = 1;
};

crds::TransformerModel deep(const Case& test, std::int64_t layers) {
  crds::TransformerModel model;
  model.layers = layers;
  model.hidden = 128;
  model.heads = 8;
  model.ffn = 256;
  model.vocab = test.vocab;
  model.sequence_length = test.sequence;
  return model;
}

class EqualLayers : public ::testing::TestWithParam<Case> {};

// Above the number that is simulated completely, so that both ways can be compared.
TEST_P(EqualLayers, PeakAndPartsAreThoseOfASimulationOfAllLayers) {
  const Case& test = GetParam();
  const std::int64_t layers = kMaxSimulatedLayers + 77;
  crds::ModelSpec model;
  model.transformer = deep(test, layers);
  crds::TrainingSpec training;
  training.batch_size_per_trainer = 4;
  training.gradient_accumulation = test.accumulation;
  training.activation_checkpointing = test.checkpointing;
  training.optimizer = test.optimizer;
  training.parallelism.strategy = test.strategy;
  for (const Device device : {Device::kCpu, Device::kCuda}) {
    const EstimateRequest request{
        .model = &model, .training = &training, .trainers = test.trainers, .device = device};
    const Result<Estimate> estimate = estimate_memory(request);
    ASSERT_TRUE(estimate.ok()) << estimate.error().message;

    const Result<SpecRun> whole = run_spec(request);
    ASSERT_TRUE(whole.ok()) << whole.error().message;
    const Estimate simulated = estimate_of(whole->heaviest, request, whole->dense_parameters);
    EXPECT_EQ(estimate->peak.allocated, simulated.peak.allocated);
    EXPECT_EQ(estimate->peak_phase, simulated.peak_phase);
    EXPECT_EQ(estimate->dense_parameters, simulated.dense_parameters);
    EXPECT_EQ(estimate->breakdown.parameters, simulated.breakdown.parameters);
    EXPECT_EQ(estimate->breakdown.gradients, simulated.breakdown.gradients);
    EXPECT_EQ(estimate->breakdown.optimizer_state, simulated.breakdown.optimizer_state);
    EXPECT_EQ(estimate->breakdown.activations, simulated.breakdown.activations);
    EXPECT_EQ(estimate->breakdown.temporaries, simulated.breakdown.temporaries);
    EXPECT_EQ(estimate->breakdown.ddp_buckets, simulated.breakdown.ddp_buckets);
    // The memory that the allocator reserves beyond the tensors is not exact.
    EXPECT_NEAR(static_cast<double>(estimate->peak.upper_bound.count) /
                    static_cast<double>(simulated.peak.upper_bound.count),
                1, 0.05);
    EXPECT_EQ(estimate->peak.upper_bound, estimate->breakdown.total());
    EXPECT_LE(estimate->peak.allocated, estimate->peak.reserved);
    EXPECT_LE(estimate->peak.reserved, estimate->peak.upper_bound);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, EqualLayers,
    ::testing::Values(
        Case{.name = "Plain"}, Case{.name = "Sgd", .optimizer = crds::Optimizer::kSGD},
        Case{.name = "Checkpointed", .checkpointing = ActivationCheckpointing::kFull},
        // With few layers the logits are at the peak, with many the optimizer.
        Case{.name = "LargeVocabulary", .checkpointing = ActivationCheckpointing::kFull, .vocab = 60'000},
        Case{.name = "LongSequences", .checkpointing = ActivationCheckpointing::kSelective, .sequence = 512},
        Case{.name = "Accumulated", .accumulation = 4},
        Case{.name = "DDP", .strategy = ParallelStrategy::kDDP, .trainers = 8},
        Case{.name = "FSDP", .strategy = ParallelStrategy::kFSDP, .trainers = 8},
        Case{.name = "FSDP2", .strategy = ParallelStrategy::kFSDP2, .trainers = 8},
        Case{.name = "ZeRO2", .strategy = ParallelStrategy::kZeRO2, .trainers = 8},
        Case{.name = "ZeRO3", .strategy = ParallelStrategy::kZeRO3, .trainers = 8}),
    [](const ::testing::TestParamInfo<Case>& test) { return std::string(test.param.name); });

TEST(EqualLayers, AModelOf65536LayersTakesNoMoreThanOneOfAFewHundred) {
  const auto work_of = [](std::int64_t layers) {
    crds::ModelSpec model;
    model.transformer = deep({.name = ""}, layers);
    crds::TrainingSpec training;
    training.batch_size_per_trainer = 4;
    Budget budget({.memory = 128_MiB});
    EXPECT_TRUE(
        estimate_memory({.model = &model, .training = &training, .device = Device::kCpu, .budget = &budget})
            .ok());
    return budget.work_done();
  };
  EXPECT_LT(work_of(65'536), 2 * work_of(384));
}

}  // namespace
}  // namespace plimsoll::estimator
