#include "estimator/layer_costs/graph_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/estimator/layer_costs/measured_layers.h"

namespace plimsoll::estimator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Trace trace_of(const char* graph) {
  return testing::exported_model(graph).traces.front();
}

TEST(GraphParts, AreTheChildrenOfASequential) {
  const Trace trace = trace_of("convolutions");
  const Result<GraphParts> parts = graph_parts(trace, nullptr);
  ASSERT_TRUE(parts.ok());
  EXPECT_THAT(parts->names, ElementsAre("0", "1", "2", "3", "4", "5", "6"));
  EXPECT_EQ(parts->of_operator.front(), 0);
  EXPECT_EQ(parts->of_operator[index(trace.loss_end) - 1], 6) << "the loss";
  EXPECT_EQ(parts->of_operator.back(), 0) << "backward ends with the first";
}

TEST(GraphParts, AreTheBlocksAndWhatIsAroundThem) {
  const Trace trace = trace_of("llama");
  const Result<GraphParts> parts = graph_parts(trace, nullptr);
  ASSERT_TRUE(parts.ok());
  EXPECT_THAT(parts->names, ElementsAre("what comes before model.layers.0", "model.layers.0",
                                        "model.layers.1", "what comes after model.layers.1"));
  EXPECT_TRUE(std::is_sorted(parts->of_operator.begin(), parts->of_operator.begin() + trace.loss_end));
  EXPECT_TRUE(std::is_sorted(parts->of_operator.rbegin(), parts->of_operator.rend() - trace.loss_end));
}

// The modules' names of a graph, changed.
std::string refusal(const char* graph, const std::string& from, const std::string& to) {
  Trace trace = trace_of(graph);
  for (std::string& module : trace.modules) {
    if (module.starts_with(from)) {
      module.replace(0, from.size(), to);
    }
  }
  const Result<GraphParts> parts = graph_parts(trace, nullptr);
  EXPECT_TRUE(parts.ok() || parts.error().code == ErrorCode::kUnsupported);
  return parts ? std::string() : parts.error().message;
}

TEST(GraphParts, AGraphWithoutOneListOfBlocksIsRefused) {
  EXPECT_THAT(refusal("llama", "model.layers.1", "model.second"),
              HasSubstr("the graph has no repeated blocks: a swap plan needs"));
  EXPECT_THAT(refusal("llama", "model.norm", "model.layers.0.norm"),
              HasSubstr("do not run one after the other"));
  EXPECT_THAT(refusal("convolutions", "6", "0"), HasSubstr("the operators of 0 run after those of 4"));
}

TEST(GraphParts, SeveralListsAreRefusedByName) {
  Trace trace = trace_of("llama");
  for (std::string& module : trace.modules) {
    module = module == "model.norm" ? "tail.0" : module == "lm_head" ? "tail.1" : module;
  }
  const Result<GraphParts> parts = graph_parts(trace, nullptr);
  ASSERT_FALSE(parts.ok());
  EXPECT_THAT(parts.error().message, HasSubstr("several lists of blocks, such as model.layers and tail"));
}

}  // namespace
}  // namespace plimsoll::estimator
