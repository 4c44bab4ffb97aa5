#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "estimator/spec/dlrm.h"

namespace plimsoll::estimator {
namespace {

crds::DlrmModel small_dlrm(crds::Interaction interaction) {
  crds::DlrmModel model;
  model.dense_features = 13;
  model.bottom_mlp = {32, 16};
  model.top_mlp = {8, 1};
  model.interaction = interaction;
  model.cross_layers = 2;
  model.cross_rank = 4;
  model.tables = {{.name = "a", .count = 3, .rows = 100, .dim = 16}};
  return model;
}

ForwardGraph lowered(const crds::DlrmModel& model, crds::Precision precision = crds::Precision::kFP32) {
  crds::TrainingSpec training;
  training.batch_size_per_trainer = 8;
  training.precision = precision;
  Result<ForwardGraph> graph = lower_dlrm(model, training);
  EXPECT_TRUE(graph.ok()) << (graph ? "" : to_string(graph.error()));
  return graph ? *std::move(graph) : ForwardGraph();
}

std::size_t count_of(const ForwardGraph& graph, OpKind kind) {
  std::size_t count = 0;
  for (std::int32_t i = 0; i < graph.op_count(); ++i) {
    count += graph.op(i).kind == kind ? 1 : 0;
  }
  return count;
}

// Linear layers with bias: in * out + out parameters each.
std::int64_t perceptrons(std::int64_t in, std::initializer_list<std::int64_t> widths) {
  std::int64_t parameters = 0;
  for (const std::int64_t out : widths) {
    parameters += in * out + out;
    in = out;
  }
  return parameters;
}

TEST(LowerDlrm, CatConcatenatesWhateverTheWidths) {
  crds::DlrmModel model = small_dlrm(crds::Interaction::kCat);
  model.tables.push_back({.name = "b", .count = 2, .rows = 10, .dim = 5});
  const ForwardGraph graph = lowered(model);
  // 16 of the bottom MLP, 3 x 16 and 2 x 5 of the tables.
  EXPECT_EQ(graph.parameter_bytes().count,
            4 * (perceptrons(13, {32, 16}) + perceptrons(16 + 48 + 10, {8, 1})));
}

TEST(LowerDlrm, DotTakesEachPairOfFeatures) {
  const ForwardGraph graph = lowered(small_dlrm(crds::Interaction::kDot));
  // Four features: 16 + 4 * 3 / 2 inputs of the top MLP; no projection, because all have width 16.
  EXPECT_EQ(graph.parameter_bytes().count, 4 * (perceptrons(13, {32, 16}) + perceptrons(16 + 6, {8, 1})));
  EXPECT_EQ(count_of(graph, OpKind::kMatMul), 1u);
}

TEST(LowerDlrm, DotProjectsTablesOfOtherWidths) {
  crds::DlrmModel model = small_dlrm(crds::Interaction::kDot);
  model.tables.push_back({.name = "narrow", .count = 2, .rows = 10, .dim = 5});
  model.tables.push_back({.name = "wide", .rows = 10, .dim = 64});
  const ForwardGraph graph = lowered(model);
  // Seven features: 16 + 7 * 6 / 2. Projections of 5 x 16 (two) and 64 x 16, without bias.
  EXPECT_EQ(graph.parameter_bytes().count,
            4 * (perceptrons(13, {32, 16}) + perceptrons(16 + 21, {8, 1}) + 2 * 5 * 16 + 64 * 16));
}

TEST(LowerDlrm, DcnCrossesWithTwoThinMatricesALayer) {
  const ForwardGraph low_rank = lowered(small_dlrm(crds::Interaction::kDCN));
  const std::int64_t width = 16 + 48;
  const std::int64_t mlps = perceptrons(13, {32, 16}) + perceptrons(width, {8, 1});
  EXPECT_EQ(low_rank.parameter_bytes().count, 4 * (mlps + 2 * (2 * 4 * width + width)));

  crds::DlrmModel model = small_dlrm(crds::Interaction::kDCN);
  model.cross_rank = 0;
  EXPECT_EQ(lowered(model).parameter_bytes().count, 4 * (mlps + 2 * (width * width + width)));
}

TEST(LowerDlrm, ModelsWithoutTablesOrWithoutDenseFeatures) {
  for (const auto interaction : {crds::Interaction::kCat, crds::Interaction::kDot, crds::Interaction::kDCN}) {
    crds::DlrmModel model = small_dlrm(interaction);
    model.tables.clear();
    EXPECT_EQ(count_of(lowered(model), OpKind::kEmbeddingLookup), 0u);
  }
  crds::DlrmModel model = small_dlrm(crds::Interaction::kCat);
  model.dense_features = 0;
  model.bottom_mlp.clear();
  EXPECT_EQ(lowered(model).parameter_bytes().count, 4 * perceptrons(48, {8, 1}));
  model = small_dlrm(crds::Interaction::kCat);
  model.bottom_mlp.clear();  // the dense features go straight into the interaction
  EXPECT_EQ(lowered(model).parameter_bytes().count, 4 * perceptrons(13 + 48, {8, 1}));
}

TEST(LowerDlrm, ThousandsOfTablesAreAFewOperators) {
  crds::DlrmModel model = small_dlrm(crds::Interaction::kCat);
  model.tables.clear();
  for (int i = 0; i < 2190; ++i) {
    model.tables.push_back({.name = "t" + std::to_string(i), .rows = 1000, .dim = 16 << (i % 5)});
  }
  EXPECT_LT(lowered(model).op_count(), 20);
}

TEST(LowerDlrm, MixedPrecisionCastsWhatAutocastCasts) {
  const crds::DlrmModel model = small_dlrm(crds::Interaction::kDot);
  EXPECT_EQ(count_of(lowered(model, crds::Precision::kFP32), OpKind::kCast), 0u);
  EXPECT_EQ(count_of(lowered(model, crds::Precision::kTF32), OpKind::kCast), 0u);
  EXPECT_EQ(count_of(lowered(model, crds::Precision::kBF16), OpKind::kCast), 0u);
  // Casts: weights and biases of four layers (8), the dense features, the bottom MLP's result to fp32, both
  // factors of the product, the logits. None for the pairs and the bottom MLP's result, which have 16 bits
  // already.
  const ForwardGraph mixed = lowered(model, crds::Precision::kBF16Mixed);
  EXPECT_EQ(count_of(mixed, OpKind::kCast), 8u + 1 + 1 + 2 + 1);
  EXPECT_EQ(mixed.parameter_bytes(), lowered(model).parameter_bytes());
  EXPECT_EQ(2 * lowered(model, crds::Precision::kBF16).parameter_bytes(), mixed.parameter_bytes());
}

TEST(LowerDlrm, RefusesWhatCannotBe) {
  struct Case {
    const char* says;
    std::function<void(crds::DlrmModel&)> spoil;
  };
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  const Case cases[] = {
      {"topMLP is empty", [](auto& m) { m.top_mlp.clear(); }},
      {"topMLP[0]", [](auto& m) { m.top_mlp[0] = 0; }},
      {"topMLP[1]", [](auto& m) { m.top_mlp[1] = -1; }},
      {"bottomMLP[0]", [](auto& m) { m.bottom_mlp[0] = kHuge; }},
      {"bottomMLP is empty", [](auto& m) { m.bottom_mlp.clear(); }},
      {"denseFeatures", [](auto& m) { m.dense_features = -1; }},
      {"denseFeatures", [](auto& m) { m.dense_features = kHuge; }},
      {"denseFeatures is 0", [](auto& m) { m.dense_features = 0; }},
      {"table a: dim", [](auto& m) { m.tables[0].dim = 0; }},
      {"table a: dim", [](auto& m) { m.tables[0].dim = std::numeric_limits<std::int64_t>::min(); }},
      {"table a: count", [](auto& m) { m.tables[0].count = 0; }},
      {"table a: count", [](auto& m) { m.tables[0].count = kHuge; }},
      {"all tables together", [](auto& m) { m.tables.resize(100'001, m.tables[0]); }},
      {"poolingFactor", [](auto& m) { m.tables[0].pooling_factor = -1; }},
      {"poolingFactor",
       [](auto& m) { m.tables[0].pooling_factor = std::numeric_limits<double>::quiet_NaN(); }},
      {"poolingFactor", [](auto& m) { m.tables[0].pooling_factor = 1e300; }},
  };
  for (const Case& bad : cases) {
    crds::DlrmModel model = small_dlrm(crds::Interaction::kDot);
    bad.spoil(model);
    const Result<ForwardGraph> graph = lower_dlrm(model, {});
    ASSERT_FALSE(graph.ok()) << bad.says;
    EXPECT_EQ(graph.error().code, ErrorCode::kInvalid);
    EXPECT_NE(graph.error().message.find(bad.says), std::string::npos) << graph.error().message;
  }
  for (const std::int64_t layers : {0L, -1L, 1001L}) {
    crds::DlrmModel model = small_dlrm(crds::Interaction::kDCN);
    model.cross_layers = layers;
    EXPECT_FALSE(lower_dlrm(model, {}).ok()) << layers;
  }
  crds::DlrmModel model = small_dlrm(crds::Interaction::kDCN);
  model.cross_rank = -1;
  EXPECT_FALSE(lower_dlrm(model, {}).ok());
}

}  // namespace
}  // namespace plimsoll::estimator
