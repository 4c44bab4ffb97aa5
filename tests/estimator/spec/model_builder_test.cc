#include "estimator/spec/model_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

using crds::Precision;
using ::testing::ElementsAre;

const Shape kRow = {per_sample(1), fixed(8)};

std::vector<OpKind> kinds_of(ModelBuilder& builder) {
  std::vector<OpKind> kinds;
  for (std::int32_t i = 0; i < builder.graph().op_count(); ++i) {
    kinds.push_back(builder.graph().op(i).kind);
  }
  return kinds;
}

TensorId input(ModelBuilder& builder) {
  return builder.graph().add_input("x", kRow, builder.stored());
}

TEST(ModelBuilder, OnlyMixedPrecisionCasts) {
  for (const auto& [precision, type] :
       {std::pair{Precision::kFP32, ElementType::kFP32}, std::pair{Precision::kTF32, ElementType::kFP32},
        std::pair{Precision::kBF16, ElementType::kBF16}}) {
    ModelBuilder builder(precision);
    EXPECT_FALSE(builder.mixed());
    const TensorId y = builder.linear("fc", input(builder), kRow, 8, 8, true);
    EXPECT_EQ(builder.type(y), type);
    EXPECT_THAT(kinds_of(builder), ElementsAre(OpKind::kLinear));
  }
}

TEST(ModelBuilder, AutocastCastsTheOperandsOfProducts) {
  ModelBuilder builder(Precision::kFP16Mixed);
  EXPECT_TRUE(builder.mixed());
  const TensorId x = input(builder);
  const TensorId y = builder.linear("fc", x, kRow, 8, 8, true);
  EXPECT_EQ(builder.type(x), ElementType::kFP32);
  EXPECT_EQ(builder.type(y), ElementType::kFP16);
  EXPECT_THAT(kinds_of(builder), ElementsAre(OpKind::kCast, OpKind::kCast, OpKind::kCast, OpKind::kLinear));
  EXPECT_EQ(builder.graph().parameter_bytes().count, (8 * 8 + 8) * 4) << "parameters stay fp32";
  // A product of what is fp16 already casts nothing.
  const TensorId products = builder.matmul("mm", y, y, kRow);
  EXPECT_EQ(builder.type(products), ElementType::kFP16);
  EXPECT_EQ(builder.graph().op_count(), 5);
}

TEST(ModelBuilder, ACastToTheSameTypeIsNone) {
  ModelBuilder builder(Precision::kFP32);
  const TensorId x = input(builder);
  EXPECT_EQ(builder.cast(x, ElementType::kFP32), x);
  const TensorId copy = builder.cast(x, ElementType::kBF16);
  EXPECT_NE(copy, x);
  EXPECT_EQ(builder.graph().bytes(copy, 3).count, 3 * 8 * 2);
  EXPECT_EQ(builder.graph().tensor(copy).storage, copy) << "a copy has its own memory";
}

TEST(ModelBuilder, AutocastNormalizesInFloat) {
  ModelBuilder mixed(Precision::kBF16Mixed);
  const TensorId y = mixed.linear("fc", input(mixed), kRow, 8, 8, false);
  EXPECT_EQ(mixed.type(mixed.layer_norm("norm", y, 8, true)), ElementType::kFP32);
  ModelBuilder pure(Precision::kBF16);
  const std::int32_t before = pure.graph().op_count();
  EXPECT_EQ(pure.type(pure.layer_norm("norm", input(pure), 8, false)), ElementType::kBF16);
  EXPECT_EQ(pure.graph().op_count(), before + 1);
  EXPECT_EQ(pure.graph().parameter_bytes().count, 8 * 2) << "a weight without a bias";
}

TEST(ModelBuilder, RmsNormComputesInFloatAndReturnsTheTypeItGot) {
  ModelBuilder pure(Precision::kBF16);
  const TensorId y = pure.rms_norm("norm", input(pure), 8);
  EXPECT_EQ(pure.type(y), ElementType::kBF16);
  // LlamaRMSNorm: to fp32, square, mean, + epsilon, rsqrt, * x, back to the type, * weight. The fp32 result has a name until
  // the function returns.
  EXPECT_THAT(kinds_of(pure),
              ElementsAre(OpKind::kCast, OpKind::kPower, OpKind::kMean, OpKind::kScale, OpKind::kRsqrt,
                          OpKind::kMul, OpKind::kCast, OpKind::kMul, OpKind::kScopeEnd));
  ModelBuilder full(Precision::kFP32);
  full.rms_norm("norm", input(full), 8);
  EXPECT_EQ(full.graph().op_count(), 7) << "no casts";
}

TEST(ModelBuilder, WithoutProbabilityThereIsNoDropout) {
  ModelBuilder builder(Precision::kFP32);
  const TensorId x = input(builder);
  EXPECT_EQ(builder.dropout("d", x, 0), x);
  EXPECT_NE(builder.dropout("d", x, 0.1), x);
  EXPECT_THAT(kinds_of(builder), ElementsAre(OpKind::kDropout));
}

TEST(ModelBuilder, CrossEntropyIsInFloatAndHoldsTheLogits) {
  ModelBuilder builder(Precision::kBF16);
  const TensorId logits = builder.linear("head", input(builder), {per_sample(1), fixed(100)}, 8, 100, false);
  builder.cross_entropy(logits, {per_sample(1)}, {});
  EXPECT_THAT(kinds_of(builder), ElementsAre(OpKind::kLinear, OpKind::kCast, OpKind::kLogSoftmax,
                                             OpKind::kNllLoss, OpKind::kScopeEnd));
  const Op loss = builder.graph().op(3);
  EXPECT_EQ(builder.graph().bytes(loss.outputs[0], 64).count, 4) << "one fp32 number for any batch";
  EXPECT_EQ(builder.graph().op(4).inputs[0], logits);
}

// LossNLL.cpp gives log_softmax the logits' own type, and autocast casts what nll_loss reads. Counted as fp32 before it was
// seen on a GPU: BERT, T5 and Whisper.
TEST(ModelBuilder, LogitsThatTheModelDoesNotCastAreCastAfterTheirLogSoftmax) {
  const auto kinds = [](Precision precision) {
    ModelBuilder builder(precision);
    const TensorId x = input(builder);
    const TensorId logits =
        builder.graph().apply(OpKind::kScale, "logits", {x}, {per_sample(1), fixed(100)}, builder.compute());
    builder.cross_entropy(logits, {per_sample(1)}, {.as_float = false});
    return kinds_of(builder);
  };
  EXPECT_THAT(kinds(Precision::kBF16Mixed), ElementsAre(OpKind::kScale, OpKind::kLogSoftmax, OpKind::kCast,
                                                        OpKind::kNllLoss, OpKind::kScopeEnd));
  EXPECT_THAT(kinds(Precision::kBF16),
              ElementsAre(OpKind::kScale, OpKind::kLogSoftmax, OpKind::kNllLoss, OpKind::kScopeEnd));
}

}  // namespace
}  // namespace plimsoll::estimator
