#include "estimator/layer_costs/graph_cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "estimator/layer_costs/graph_parts.h"
#include "tests/estimator/layer_costs/measured_layers.h"

namespace plimsoll::estimator {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

struct Whole {
  explicit Whole(const char* graph) : trace(testing::exported_model(graph).traces.front()) {
    Result<GraphParts> found = graph_parts(trace, nullptr);
    EXPECT_TRUE(found.ok());
    parts = found ? *std::move(found) : GraphParts();
  }
  Result<GraphCut> cut() const { return GraphCut::of(trace, parts, nullptr); }
  std::string refusal() const {
    const Result<GraphCut> tried = cut();
    EXPECT_FALSE(tried.ok());
    return tried ? std::string() : to_string(tried.error());
  }
  // Of forward, the first one in that module.
  TraceOperator& operator_in(const std::string& module) {
    const auto found = std::find_if(
        trace.operators.begin(), trace.operators.end(),
        [&](const TraceOperator& op) { return op.module >= 0 && trace.modules[index(op.module)] == module; });
    EXPECT_NE(found, trace.operators.end()) << module;
    return *found;
  }
  std::int32_t& input_of(const std::string& module) {
    return trace.operands[index(operator_in(module).inputs.begin)];
  }
  std::int32_t& output_of(const std::string& module) {
    return trace.operands[index(operator_in(module).outputs.begin)];
  }

  Trace trace;
  GraphParts parts;
};

std::vector<std::string> names(const std::vector<TraceBuffer>& buffers) {
  std::vector<std::string> all;
  for (const TraceBuffer& buffer : buffers) {
    all.push_back(buffer.name);
  }
  return all;
}

TEST(GraphCut, EveryOperatorIsInALayer) {
  for (const char* const graph : {"gpt2", "llama", "bert", "multilayer", "convolutions"}) {
    const Whole whole(graph);
    const Result<GraphCut> cut = whole.cut();
    ASSERT_TRUE(cut.ok()) << to_string(cut.error());
    std::size_t operators = 0;
    for (std::size_t i = 0; i < cut->layers(); ++i) {
      operators += cut->layer(i).rows.operators.size();
    }
    EXPECT_GE(operators + 1, whole.trace.operators.size())
        << graph << ": all but the sum of a shared gradient";
  }
}

// GPT-2's embeddings and its head.
TEST(GraphCut, ASharedParameterHasAGradientInEachLayer) {
  const Whole whole("gpt2");
  const Result<GraphCut> cut = whole.cut();
  ASSERT_TRUE(cut.ok());
  for (const std::size_t layer : {std::size_t{0}, cut->layers() - 1}) {
    const LayerCut alone = cut->layer(layer);
    const auto shared = std::find_if(alone.rows.parameters.begin(), alone.rows.parameters.end(),
                                     [](const auto& each) { return each.name == "transformer.wte.weight"; });
    ASSERT_NE(shared, alone.rows.parameters.end());
    ASSERT_EQ(shared->gradient.size(), 1U);
    EXPECT_EQ(alone.rows.storages[index(shared->gradient.front())].role, StorageRole::kGradient);
  }
}

// Tables of positions, with all buffers of the module that makes them.
TEST(GraphCut, EachBlockComputesAgainWhatNothingGivenMakes) {
  const Whole whole("llama");
  const Result<GraphCut> cut = whole.cut();
  ASSERT_TRUE(cut.ok());
  for (const std::size_t block : {1U, 2U}) {
    EXPECT_THAT(names(cut->layer(block).rows.buffers),
                UnorderedElementsAre("model.rotary_emb.inv_freq", "model.rotary_emb.original_inv_freq"));
  }
  EXPECT_TRUE(cut->layer(0).rows.buffers.empty()) << "the embedding does not";
  EXPECT_EQ(cut->layer(1).rows.operators.size(), cut->layer(2).rows.operators.size());
}

TEST(GraphCut, ALayerWithoutOperatorsTakesWhatTheNextOneDoes) {
  const Whole whole("convolutions");
  const Result<GraphCut> cut = whole.cut();
  ASSERT_TRUE(cut.ok());
  EXPECT_TRUE(cut->layer(5).rows.operators.empty()) << "nn.Flatten";
  ASSERT_FALSE(cut->layer(5).inputs.empty());
  EXPECT_EQ(cut->layer(5).inputs.front().storage, cut->layer(6).inputs.front().storage);
}

TEST(GraphCut, ASkippedLayerIsRefused) {
  Whole whole("gpt2");
  whole.input_of("transformer.h.1.mlp.c_proj") = whole.output_of("transformer.wte");
  EXPECT_THAT(whole.refusal(),
              HasSubstr("Unsupported: transformer.h.1 reads what what comes before transformer.h.0 made"));
}

TEST(GraphCut, ALayerThatReadsAnInputOfTheModelIsRefused) {
  Whole whole("gpt2");
  const std::int32_t ids = whole.trace.operands[index(whole.operator_in("transformer.wte").inputs.begin) + 1];
  whole.input_of("transformer.h.1.mlp.c_proj") = ids;
  EXPECT_THAT(whole.refusal(), HasSubstr("transformer.h.1 reads an input of the model"));
}

TEST(GraphCut, ALayerThatChangesItsInputIsRefused) {
  Whole whole("multilayer");
  whole.output_of("5") = whole.input_of("5");  // nn.ReLU(inplace=True)
  EXPECT_THAT(whole.refusal(), HasSubstr("5 changes its input in place"));
}

TEST(GraphCut, AFrozenOrSparseParameterIsRefusedByName) {
  Whole frozen("gpt2");
  frozen.trace.parameters[3].trainable = false;
  EXPECT_THAT(frozen.refusal(), HasSubstr("transformer.h.0.ln_1.bias gets no gradient"));
  Whole sparse("gpt2");
  sparse.trace.parameters[0].sparse_gradient = true;
  EXPECT_THAT(sparse.refusal(), HasSubstr("the gradient of transformer.wte.weight is sparse"));
}

TEST(GraphCut, ChargesTheBudget) {
  const Whole whole("gpt2");
  Budget budget({.work = 100});
  const Result<GraphCut> cut = budget.run([&] { return GraphCut::of(whole.trace, whole.parts, &budget); });
  EXPECT_FALSE(cut.ok());
}

}  // namespace
}  // namespace plimsoll::estimator
