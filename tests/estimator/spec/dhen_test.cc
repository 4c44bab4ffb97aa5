#include "estimator/spec/dhen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace plimsoll::estimator {
namespace {

using crds::DhenModule;
using ::testing::HasSubstr;

constexpr std::int64_t kWidth = 8;
constexpr std::int64_t kFeatures = 5;
constexpr std::int64_t kNorm = 2 * kWidth;  // weight and bias of a LayerNorm

crds::DlrmModel model_of(std::int64_t layers, std::int64_t features, const std::vector<DhenModule>& modules) {
  crds::DlrmModel model;
  model.bottom_mlp = {32, kWidth};
  model.interaction = crds::Interaction::kDHEN;
  model.dhen = crds::DhenStack{.layers = layers, .features = features, .modules = modules};
  return model;
}

// A linear layer with bias.
constexpr std::int64_t dense(std::int64_t in, std::int64_t out) {
  return in * out + out;
}

struct Lowered {
  explicit Lowered(const crds::DlrmModel& model) {
    const TensorId x =
        builder.graph().add_input("x", {per_sample(1), fixed(kFeatures), fixed(kWidth)}, ElementType::kFP32);
    y = lower_dhen(builder, model, x, &features);
  }
  std::int64_t parameters() { return builder.graph().parameter_bytes().count / 4; }

  ModelBuilder builder{crds::Precision::kFP32};
  TensorId y = -1;
  std::int64_t features = kFeatures;
};

TEST(Dhen, LinearModulesCombineFeatures) {
  Lowered lowered(model_of(2, 3, {DhenModule::kLinear, DhenModule::kLinear}));
  EXPECT_EQ(lowered.features, 6);
  EXPECT_EQ(lowered.builder.graph().bytes(lowered.y, 10).count, 10 * 6 * kWidth * 4);
  // The first layer changes the number of features from 5 to 6, which its shortcut must do too.
  const std::int64_t first = 2 * dense(5, 3) + dense(5, 6) + kNorm;
  const std::int64_t second = 2 * dense(6, 3) + kNorm;
  EXPECT_EQ(lowered.parameters(), first + second);
}

TEST(Dhen, DotTakesThePairsThroughTwoLayers) {
  Lowered lowered(model_of(1, 5, {DhenModule::kDot}));
  EXPECT_EQ(lowered.features, 5);
  const std::int64_t pairs = 5 * 4 / 2;
  EXPECT_EQ(lowered.parameters(), dense(pairs, 5 * kWidth) + dense(5 * kWidth, 5 * kWidth) + kNorm);
}

TEST(Dhen, DcnCrossesTheConcatenation) {
  crds::DlrmModel model = model_of(1, 5, {DhenModule::kDCN});
  constexpr std::int64_t kIn = kFeatures * kWidth;
  EXPECT_EQ(Lowered(model).parameters(), dense(kIn, kIn) + dense(kIn, kIn) + kNorm);
  model.cross_rank = 4;
  EXPECT_EQ(Lowered(model).parameters(), 2 * kIn * 4 + kIn + dense(kIn, kIn) + kNorm);
}

TEST(Dhen, AttentionHasFourMatricesAndOneKernel) {
  crds::DlrmModel model = model_of(1, 5, {DhenModule::kAttention});
  model.dhen->heads = 2;
  Lowered lowered(model);
  EXPECT_EQ(lowered.parameters(), 4 * dense(kWidth, kWidth) + dense(5, 5) + kNorm);
  int kernels = 0;
  for (std::int32_t i = 0; i < lowered.builder.graph().op_count(); ++i) {
    kernels += lowered.builder.graph().op(i).kind == OpKind::kAttention ? 1 : 0;
  }
  EXPECT_EQ(kernels, 1);
}

TEST(Dhen, EachLayerIsABlockAndAUnit) {
  Lowered lowered(model_of(3, 5, {DhenModule::kLinear}));
  std::set<std::int32_t> blocks;
  std::set<std::int32_t> units;
  for (const Tensor& tensor : lowered.builder.graph().tensors()) {
    if (tensor.role == TensorRole::kParameter) {
      units.insert(tensor.unit);
    }
  }
  for (std::int32_t i = 0; i < lowered.builder.graph().op_count(); ++i) {
    if (lowered.builder.graph().op(i).kind == OpKind::kLinear) {
      blocks.insert(lowered.builder.graph().op(i).block);
    }
  }
  EXPECT_EQ(units.size(), 3U);
  EXPECT_EQ(blocks.size(), 3U);
  EXPECT_FALSE(blocks.contains(-1));
}

TEST(Dhen, ModelsThatCannotBeAreNamed) {
  const auto refused = [](const crds::DlrmModel& model, const char* text) {
    const Result<void> checked = check_dhen(model);
    ASSERT_FALSE(checked.ok()) << text;
    EXPECT_EQ(checked.error().code, ErrorCode::kInvalid);
    EXPECT_THAT(checked.error().message, HasSubstr(text));
  };
  const crds::DlrmModel good = model_of(1, 5, {DhenModule::kAttention});
  EXPECT_TRUE(check_dhen(good).ok());
  crds::DlrmModel bad = good;
  bad.dhen.reset();
  refused(bad, "model.dlrm.dhen is missing");
  for (const std::int64_t layers : {0, -1, 1001}) {
    refused(model_of(layers, 5, {DhenModule::kDot}), "layers must be from 1");
  }
  refused(model_of(1, 0, {DhenModule::kDot}), "features from 1");
  refused(model_of(1, 5, {}), "number of modules");
  refused(model_of(1, 5, std::vector<DhenModule>(65, DhenModule::kDot)), "number of modules");
  bad = good;
  bad.dhen->heads = 3;  // of a width of 8
  refused(bad, "model.dlrm.dhen.heads is 3");
  bad.dhen->heads = 0;
  refused(bad, "model.dlrm.dhen.heads is 0");
}

TEST(Interactions, PairwiseProductsHaveOneForEachPair) {
  ModelBuilder builder(crds::Precision::kFP32);
  const TensorId x =
      builder.graph().add_input("x", {per_sample(1), fixed(27), fixed(16)}, ElementType::kFP32);
  const TensorId pairs = pairwise_products(builder, "dot", x);
  EXPECT_EQ(builder.graph().bytes(pairs, 2).count, 2 * (27 * 26 / 2) * 4);
}

TEST(Interactions, ACrossLayerKeepsItsWidth) {
  ModelBuilder builder(crds::Precision::kFP32);
  const TensorId x = builder.graph().add_input("x", {per_sample(1), fixed(24)}, ElementType::kFP32);
  const TensorId y = cross_layer(builder, "cross", x, x, 24, 0);
  EXPECT_EQ(builder.graph().bytes(y, 5).count, 5 * 24 * 4);
  EXPECT_EQ(builder.graph().parameter_bytes().count, (24 * 24 + 24) * 4);
}

}  // namespace
}  // namespace plimsoll::estimator
