#include "estimator/spec/forward_graph.h"

#include <gtest/gtest.h>

#include "estimator/spec/dlrm.h"

namespace plimsoll::estimator {
namespace {

TEST(ForwardGraph, ShapesAreAffineInTheBatchAndSaturate) {
  ForwardGraph graph;
  const TensorId x = graph.add_input("x", {per_sample(3), fixed(5)}, ElementType::kFP32);
  EXPECT_EQ(graph.bytes(x, 1).count, 60);
  EXPECT_EQ(graph.bytes(x, 100).count, 6000);
  const TensorId y = graph.add_input("y", {Dim{.constant = 1, .per_sample = 2}}, ElementType::kInt64);
  EXPECT_EQ(graph.bytes(y, 10).count, 8 * 21);
  const TensorId huge =
      graph.add_parameter("huge", {fixed(kMaxModelDim), fixed(kMaxModelDim)}, ElementType::kFP32);
  EXPECT_EQ(graph.bytes(huge, 1), Bytes::max());
  EXPECT_EQ(graph.parameter_bytes(), Bytes::max());
}

TEST(ForwardGraph, ViewsShareTheMemoryOfWhatTheyView) {
  ForwardGraph graph;
  const TensorId x = graph.add_parameter("x", {fixed(4), fixed(6)}, ElementType::kFP32);
  const TensorId y = graph.apply(OpKind::kRelu, "y", {x}, {fixed(4), fixed(6)}, ElementType::kFP32);
  const TensorId flat = graph.view("flat", y, {fixed(24)});
  EXPECT_EQ(graph.tensor(flat).storage, y);
  EXPECT_TRUE(graph.tensor(flat).requires_grad);
  const std::vector<TensorId> parts = graph.split("parts", flat, {{fixed(8)}, {fixed(4)}}, {1, 4});
  EXPECT_EQ(graph.tensor(parts[1]).storage, y);
  EXPECT_EQ(graph.bytes(parts[1], 1).count, 4 * 4 * 4);
}

TEST(ForwardGraph, GradientsAreNeededBehindParametersAndLookups) {
  ForwardGraph graph;
  const Shape row = {per_sample(1), fixed(4)};
  const TensorId x = graph.add_input("x", row, ElementType::kFP32);
  const TensorId w = graph.add_parameter("w", {fixed(4), fixed(4)}, ElementType::kFP32);
  const TensorId of_input = graph.apply(OpKind::kRelu, "r", {x}, row, ElementType::kFP32);
  EXPECT_FALSE(graph.tensor(of_input).requires_grad);
  const TensorId y = graph.apply(OpKind::kLinear, "y", {x, w}, row, ElementType::kFP32);
  EXPECT_TRUE(graph.tensor(y).requires_grad);
  const TensorId order = graph.apply(OpKind::kSort, "order", {y}, row, ElementType::kInt64);
  EXPECT_FALSE(graph.tensor(order).requires_grad) << "integers have no gradient";
  const TensorId ids = graph.add_input("ids", {per_sample(1)}, ElementType::kInt64);
  const TensorId pooled = graph.apply(OpKind::kEmbeddingLookup, "tables", {ids}, row, ElementType::kFP32);
  EXPECT_TRUE(graph.tensor(pooled).requires_grad) << "the tables are trained";
}

TEST(ForwardGraph, CopiesOfALayerFollowEachOther) {
  ForwardGraph graph;
  const Shape row = {per_sample(1), fixed(4)};
  const TensorId x = graph.add_input("x", row, ElementType::kFP32);
  const ForwardGraph::Mark begin = graph.mark();
  graph.begin_unit();
  graph.begin_block();
  const TensorId w = graph.add_parameter("layers.0.w", {fixed(4), fixed(4)}, ElementType::kFP32);
  const TensorId y = graph.apply(OpKind::kLinear, "layers.0.fc", {x, w}, row, ElementType::kFP32);
  graph.end_block();
  graph.end_unit();
  const TensorId last = graph.repeat(begin, x, y, 2, "layers.0");

  ASSERT_EQ(graph.op_count(), 3);
  EXPECT_EQ(graph.op(0).inputs[0], x);
  EXPECT_EQ(graph.op(1).inputs[0], y);
  EXPECT_EQ(graph.op(2).inputs[0], graph.op(1).outputs[0]);
  EXPECT_EQ(graph.op(2).outputs[0], last);
  EXPECT_EQ(graph.op(0).like, 0);
  EXPECT_EQ(graph.op(2).like, 0);
  for (std::int32_t i = 1; i < 3; ++i) {
    EXPECT_NE(graph.op(i).inputs[1], w) << "each copy has its own weight";
    EXPECT_EQ(graph.op(i).unit, graph.op(0).unit + i);
    EXPECT_EQ(graph.op(i).block, graph.op(0).block + i);
    EXPECT_EQ(graph.tensor(graph.op(i).inputs[1]).unit, graph.tensor(w).unit + i);
  }
  EXPECT_EQ(graph.name_of(last), "layers.2.fc");
  EXPECT_EQ(graph.parameter_bytes().count, 3 * 4 * 4 * 4);
}

TEST(ForwardGraph, NoCopiesEndWithTheLayerItself) {
  ForwardGraph graph;
  const TensorId x = graph.add_input("x", {per_sample(1)}, ElementType::kFP32);
  const ForwardGraph::Mark begin = graph.mark();
  const TensorId y = graph.apply(OpKind::kRelu, "layers.0", {x}, {per_sample(1)}, ElementType::kFP32);
  EXPECT_EQ(graph.repeat(begin, x, y, 0, "layers.0"), y);
  EXPECT_EQ(graph.op_count(), 1);
}

TEST(ForwardGraph, ACopyThatViewsItsInputViewsThePreviousLayer) {
  ForwardGraph graph;
  const TensorId x = graph.add_input("x", {per_sample(4)}, ElementType::kFP32);
  const ForwardGraph::Mark begin = graph.mark();
  const TensorId view = graph.view("layers.0.view", x, {per_sample(2), fixed(2)});
  const TensorId y = graph.apply(OpKind::kRelu, "layers.0", {view}, {per_sample(4)}, ElementType::kFP32);
  graph.repeat(begin, x, y, 1, "layers.0");
  EXPECT_EQ(graph.tensor(view).storage, x);
  EXPECT_EQ(graph.tensor(graph.op(2).outputs[0]).storage, y);
}

TEST(ForwardGraph, UnitsAndBlocksBeginAndEnd) {
  ForwardGraph graph;
  const TensorId x = graph.add_input("x", {per_sample(1)}, ElementType::kFP32);
  const auto relu = [&] {
    graph.apply(OpKind::kRelu, "r", {x}, {per_sample(1)}, ElementType::kFP32);
    return graph.op(graph.op_count() - 1);
  };
  EXPECT_EQ(relu().unit, -1);
  EXPECT_EQ(relu().block, -1);
  graph.begin_block();
  EXPECT_TRUE(graph.in_block());
  const std::int32_t first = relu().block;
  EXPECT_EQ(relu().block, first);
  graph.begin_block();
  EXPECT_NE(relu().block, first);
  graph.end_block();
  EXPECT_FALSE(graph.in_block());
  EXPECT_EQ(relu().block, -1);
}

TEST(ForwardGraph, ArithmeticOnTwoTypesIsDoneInTheWider) {
  EXPECT_EQ(widest(ElementType::kBF16, ElementType::kBF16), ElementType::kBF16);
  EXPECT_EQ(widest(ElementType::kBF16, ElementType::kFP32), ElementType::kFP32);
  EXPECT_EQ(widest(ElementType::kFP16, ElementType::kBF16), ElementType::kFP32);  // as torch.result_type
}

TEST(ForwardGraph, EachTensorAndOperatorCostsWork) {
  Budget budget({.work = 10});
  ForwardGraph graph(&budget);
  const TensorId x = graph.add_input("x", {per_sample(1)}, ElementType::kFP32);
  EXPECT_THROW(
      {
        for (int i = 0; i < 10; ++i) {
          graph.apply(OpKind::kRelu, "r", {x}, {per_sample(1)}, ElementType::kFP32);
        }
      },
      BudgetExceeded);
}

}  // namespace
}  // namespace plimsoll::estimator
