#include "estimator/estimate/amp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/estimator/operator_trace.h"

namespace plimsoll::estimator {
namespace {

using ::testing::HasSubstr;
using testing::OperatorTrace;

// x [B, 8] times a weight [8, 16], a ReLU in place, a cast to 16 bits, and a product of 4 columns.
OperatorTrace two_products() {
  OperatorTrace built;
  const std::int32_t x = built.tensor({OperatorTrace::kBatch, 8});
  const std::int32_t scaled = built.tensor({OperatorTrace::kBatch, 8});
  const std::int32_t first = built.parameter("first", {8, 16});
  const std::int32_t product = built.tensor({OperatorTrace::kBatch, 16});
  const std::int32_t most = built.tensor({OperatorTrace::kBatch}, "int64");
  const std::int32_t cast = built.tensor({OperatorTrace::kBatch, 16}, "bfloat16");
  const std::int32_t result = built.tensor({OperatorTrace::kBatch, 4}, "bfloat16");
  built.add("aten::div", {x}, {scaled});
  built.add("aten::mm", {scaled, first}, {product});
  built.add("aten::relu_", {product}, {built.alias(product)});
  built.add("aten::argmax", {product}, {most});
  built.add("aten::_to_copy", {product}, {cast});
  built.add("aten::mm", {cast, built.parameter("second", {16, 4})}, {result});
  built.trace.forward_end = 6;
  built.add("aten::sum", {result}, {built.tensor({})});
  built.trace.loss_end = 7;
  return built;
}

// Of each sample, 16 floats of the product, as many of the ReLU, and 4 of 16 bits of the second product. The
// scaled input and the indices require no gradient, the cast is no node, and the loss is not in the model.
TEST(AmpTrainingBytes, SumsTheOutputsThatRequireAGradient) {
  const OperatorTrace built = two_products();
  EXPECT_EQ(amp_training_bytes(built.trace, 10), Bytes{10 * (64 + 64 + 8)});
  EXPECT_EQ(amp_training_bytes(built.trace, 1), Bytes{64 + 64 + 8});
}

TEST(AmpTrainingBytes, AFrozenLayerHasNoGradientBeforeTheFirstTrainedOne) {
  OperatorTrace built = two_products();
  built.trace.parameters[0].trainable = false;
  EXPECT_EQ(amp_training_bytes(built.trace, 10), Bytes{10 * 8});
  built.trace.parameters[1].trainable = false;
  EXPECT_EQ(amp_training_bytes(built.trace, 10), Bytes{});
}

TEST(AmpTrainingBytes, SizesBeyondAnyMachineDoNotWrap) {
  EXPECT_EQ(amp_training_bytes(two_products().trace, std::int64_t{1} << 60), Bytes::max());
}

TEST(AmpPredictedBytes, ALineIsPredictedExactly) {
  const auto line = [](std::int64_t batch) { return Bytes{100 + 7 * batch}; };
  EXPECT_NEAR(static_cast<double>(amp_predicted_bytes(line, 1000).count), 7100, 1);
  EXPECT_NEAR(static_cast<double>(amp_predicted_bytes(line, 1).count), 107, 1);
}

// Section 9.2.1: ten micro-batches, from 13 to 43, whatever the actual batch.
TEST(AmpPredictedBytes, OnlyMicroBatchesAreExecuted) {
  std::vector<std::int64_t> batches;
  amp_predicted_bytes(
      [&](std::int64_t batch) {
        batches.push_back(batch);
        return Bytes{batch};
      },
      100'000);
  EXPECT_EQ(batches.size(), 10U);
  EXPECT_EQ(batches.front(), 13);
  EXPECT_EQ(batches.back(), 43);
  EXPECT_TRUE(std::is_sorted(batches.begin(), batches.end()));
}

TEST(AmpPredictedBytes, IsNeverNegative) {
  EXPECT_EQ(amp_predicted_bytes([](std::int64_t batch) { return Bytes{1000 - 20 * batch}; }, 1000), Bytes{});
}

// Parameters of 8 x 16 and 16 x 4 floats: 768 bytes. Adam on the CPU has two moments, and a step count of four
// bytes for each parameter.
TEST(EstimateByAmp, IsLinearInTheDenseParameters) {
  OperatorTrace built = two_products();
  crds::TrainingSpec training;
  training.batch_size_per_trainer = 1000;
  const EstimateRequest request{.training = &training, .device = Device::kCpu};
  const Result<Estimate> estimate = estimate_by_amp(request, built.trace, built.shapes(), 215,
                                                    [](std::int64_t batch) { return Bytes{100 * batch}; });
  ASSERT_TRUE(estimate.ok()) << to_string(estimate.error());
  EXPECT_EQ(estimate->breakdown.parameters, 768_B);
  EXPECT_EQ(estimate->breakdown.ddp_buckets, 768_B);
  EXPECT_EQ(estimate->breakdown.optimizer_state, Bytes{2 * 768 + 2 * 4});
  EXPECT_NEAR(static_cast<double>(estimate->breakdown.activations.count), 100'000, 1);
  EXPECT_EQ(estimate->dense_parameters, 768_B);
  EXPECT_EQ(estimate->peak.upper_bound, estimate->breakdown.total());
  EXPECT_TRUE(estimate->largest_live.empty());
}

TEST(EstimateByAmp, AnOptimizerThatPyTorchLacksIsRefused) {
  OperatorTrace built = two_products();
  crds::TrainingSpec training;
  training.batch_size_per_trainer = 8;
  training.optimizer = crds::Optimizer::kRMSprop;
  training.optimizer_implementation = crds::OptimizerImplementation::kFused;
  const Result<Estimate> estimate =
      estimate_by_amp({.training = &training, .device = Device::kCpu}, built.trace, built.shapes(), 215,
                      [](std::int64_t) { return Bytes{}; });
  ASSERT_FALSE(estimate.ok());
  EXPECT_EQ(estimate.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(estimate.error().message, HasSubstr("RMSprop"));
}

}  // namespace
}  // namespace plimsoll::estimator
