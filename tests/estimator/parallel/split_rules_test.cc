#include "estimator/parallel/split_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "tests/estimator/operator_trace.h"

namespace plimsoll::estimator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::number;
using testing::numbers;
using testing::OperatorTrace;

class View {
 public:
  View(std::vector<std::int64_t> shape, std::vector<std::int64_t> strides)
      : shape_(std::move(shape)), strides_(std::move(strides)) {
    view_.present = true;
    view_.shape = shape_;
    view_.strides = strides_;
    view_.elements = std::accumulate(shape_.begin(), shape_.end(), std::int64_t{1}, std::multiplies<>());
  }
  const TensorView& operator*() const { return view_; }

 private:
  std::vector<std::int64_t> shape_;
  std::vector<std::int64_t> strides_;
  TensorView view_;
};

// Columns of an [8 tokens, 12] result split between two trainers, as seen by q, k and v (4 each, of two
// heads).
TEST(SplitOfView, FindsTheHeadsOfAPackedProjection) {
  const StorageSplit columns{.stride = 1, .extent = 12, .part = 6, .packed = true};
  const View all({8, 12}, {12, 1});
  const Result<ViewSplit> whole = split_of_view(columns, *all);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->dim, 1);
  EXPECT_EQ(whole->part, 6);
  const View queries({8, 2, 2}, {12, 2, 1});
  const Result<ViewSplit> heads = split_of_view(columns, *queries);
  ASSERT_TRUE(heads.ok());
  EXPECT_EQ(heads->extent, 2);
  EXPECT_EQ(heads->part, 1);
  const View three({3, 8, 4}, {4, 12, 1});  // a separate dimension for q, k and v
  const Result<ViewSplit> inner = split_of_view(columns, *three);
  ASSERT_TRUE(inner.ok());
  EXPECT_EQ(inner->dim, 2);
}

TEST(SplitOfView, KeepsADivisionInsideOfMergedDimensions) {
  // [2, 4 heads, 3] split by heads, viewed as [8, 3] and as [24].
  const StorageSplit heads{.stride = 3, .extent = 4, .part = 1, .packed = false};
  const View merged({8, 3}, {3, 1});
  const Result<ViewSplit> rows = split_of_view(heads, *merged);
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(rows->dim, 0);
  EXPECT_EQ(rows->extent, 4);
  const StorageSplit back = split_of_storage(*rows, *merged);
  EXPECT_EQ(back.stride, 3);
  EXPECT_EQ(back.extent, 4);
  const View flat({24}, {1});
  const Result<ViewSplit> all = split_of_view(heads, *flat);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->block, 3);
}

TEST(SplitOfView, RefusesWhatDoesNotDivide) {
  const StorageSplit thirds{.stride = 1, .extent = 16, .part = 6, .packed = false};
  EXPECT_FALSE(split_of_view(thirds, *View({8, 4, 4}, {16, 4, 1})).ok());
  EXPECT_FALSE(split_of_view(thirds, *View({8, 1}, {16, 1})).ok());  // one of its columns
}

// ---- one operator ----

struct Operand {
  std::vector<std::int64_t> shape;
  std::int32_t dim = -1;  // is split in halves; -1: whole
  bool constant = false;
};

constexpr bool kConstant = true;

Result<SplitResult> propagate(const std::string& name, const std::vector<Operand>& operands,
                              const std::vector<std::vector<std::int64_t>>& results,
                              Attributes attributes = {}, bool in_backward = false) {
  OperatorTrace built;
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> outputs;
  for (const Operand& operand : operands) {
    inputs.push_back(built.tensor(operand.shape));
  }
  for (const std::vector<std::int64_t>& shape : results) {
    outputs.push_back(built.tensor(shape));
  }
  built.add(name, inputs, outputs, std::move(attributes));
  const KernelCall call = built.call();
  std::vector<SplitOperand> split;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const std::int32_t dim = operands[i].dim;
    const std::int64_t size = dim < 0 ? 0 : operands[i].shape[static_cast<std::size_t>(dim)];
    split.push_back({.view = call.input(i),
                     .split = dim < 0 ? ViewSplit() : ViewSplit{.dim = dim, .extent = size, .part = size / 2},
                     .constant = operands[i].constant});
  }
  return propagate_split(name, call, split, in_backward);
}

// The split dimension of each output; "partial" for a first output that must be summed.
std::vector<std::string> splits(const Result<SplitResult>& result) {
  if (!result) {
    EXPECT_EQ(result.error().code, ErrorCode::kUnsupported);
    return {result.error().message};
  }
  std::vector<std::string> found;
  for (const ViewSplit& split : result->outputs) {
    found.push_back(split.any() ? std::to_string(split.dim) : "whole");
    EXPECT_TRUE(!split.any() || split.part * 2 == split.extent) << "half of it";
  }
  if (result->partial) {
    found.front() = "partial";
  }
  return found;
}

// Megatron-LM, arXiv 1909.08053, figure 3: a layer split by columns, then one split by rows.
TEST(PropagateSplit, ColumnsThenRowsNeedOneSum) {
  EXPECT_THAT(splits(propagate("aten::mm", {{{4, 8}}, {{8, 12}, 1}}, {{4, 12}})), ElementsAre("1"));
  EXPECT_THAT(splits(propagate("aten::gelu", {{{4, 12}, 1}}, {{4, 12}})), ElementsAre("1"));
  EXPECT_THAT(splits(propagate("aten::mm", {{{4, 12}, 1}, {{12, 8}, 0}}, {{4, 8}})), ElementsAre("partial"));
}

TEST(PropagateSplit, AProductNeedsBothSidesOfTheContractionSplitAlike) {
  EXPECT_THAT(splits(propagate("aten::mm", {{{4, 12}, 1}, {{12, 8}}}, {{4, 8}})),
              ElementsAre(HasSubstr("not split by rows")));
  EXPECT_THAT(splits(propagate("aten::mm", {{{4, 12}}, {{12, 8}, 0}}, {{4, 8}})),
              ElementsAre(HasSubstr("its input is not split")));
  EXPECT_THAT(splits(propagate("aten::mm", {{{4, 12}, 0}, {{12, 8}, 1}}, {{4, 8}})),
              ElementsAre(HasSubstr("not along the contracted dimension")));
  EXPECT_THAT(splits(propagate("aten::mm", {{{4, 12}, 0}, {{12, 8}}}, {{4, 8}})), ElementsAre("0"));
}

TEST(PropagateSplit, ABiasIsSplitWithTheColumns) {
  EXPECT_THAT(splits(propagate("aten::addmm", {{{12}, 0}, {{4, 8}}, {{8, 12}, 1}}, {{4, 12}})),
              ElementsAre("1"));
  EXPECT_THAT(splits(propagate("aten::addmm", {{{12}}, {{4, 8}}, {{8, 12}, 1}}, {{4, 12}})),
              ElementsAre(HasSubstr("one that is whole")));
  EXPECT_THAT(splits(propagate("aten::linear", {{{4, 8}}, {{12, 8}, 0}}, {{4, 12}})), ElementsAre("1"))
      << "its weight is transposed";
}

TEST(PropagateSplit, BatchedProductsKeepTheBatch) {
  EXPECT_THAT(splits(propagate("aten::bmm", {{{4, 8, 2}, 0}, {{4, 2, 8}, 0}}, {{4, 8, 8}})),
              ElementsAre("0"));
  EXPECT_THAT(splits(propagate("aten::bmm", {{{4, 8, 2}, 0}, {{4, 2, 8}}}, {{4, 8, 8}})),
              ElementsAre(HasSubstr("one that is whole")));
  EXPECT_THAT(splits(propagate("aten::bmm", {{{4, 8, 2}, 2}, {{4, 2, 8}, 1}}, {{4, 8, 8}})),
              ElementsAre(HasSubstr("sums over the split dimension")));
}

TEST(PropagateSplit, ElementwiseOperandsMustAgree) {
  EXPECT_THAT(splits(propagate("aten::add", {{{4, 12}, 1}, {{12}, 0}}, {{4, 12}})), ElementsAre("1"));
  EXPECT_THAT(splits(propagate("aten::add", {{{4, 12}, 1}, {{4, 1}}}, {{4, 12}})), ElementsAre("1"))
      << "a broadcast operand does not have the dimension";
  EXPECT_THAT(splits(propagate("aten::add", {{{4, 12}, 1}, {{4, 12}}}, {{4, 12}})),
              ElementsAre(HasSubstr("one that is whole")));
  EXPECT_THAT(splits(propagate("aten::add", {{{4, 12}, 1}, {{4, 12}, 0}}, {{4, 12}})),
              ElementsAre(HasSubstr("different dimensions")));
}

TEST(PropagateSplit, AConstantIsSplitToMatch) {
  const Result<SplitResult> result =
      propagate("aten::masked_fill", {{{4, 8, 8}, 0}, {{4, 8, 8}, -1, kConstant}}, {{4, 8, 8}});
  ASSERT_TRUE(result.ok()) << result.error().message;
  ASSERT_EQ(result->adapted.size(), 1U);
  EXPECT_EQ(result->adapted.front().operand, 1U);
  EXPECT_EQ(result->adapted.front().split.dim, 0);
  EXPECT_EQ(result->adapted.front().split.part, 2);
}

TEST(PropagateSplit, SoftmaxAndNormalizationNeedTheirWholeDimension) {
  EXPECT_THAT(splits(propagate("aten::_softmax", {{{4, 8, 8}, 0}}, {{4, 8, 8}}, {number("dim", -1)})),
              ElementsAre("0"));
  EXPECT_THAT(splits(propagate("aten::_softmax", {{{4, 8, 8}, 2}}, {{4, 8, 8}}, {number("dim", -1)})),
              ElementsAre(HasSubstr("works along the split dimension")));
  const Attributes shape = {numbers("normalized_shape", {16})};
  EXPECT_THAT(splits(propagate("aten::native_layer_norm", {{{4, 16}, 0}, {{16}}, {{16}}},
                               {{4, 16}, {4, 1}, {4, 1}}, shape)),
              ElementsAre("0", "0", "0"));
  EXPECT_THAT(splits(propagate("aten::native_layer_norm", {{{4, 16}, 1}, {{16}}, {{16}}},
                               {{4, 16}, {4, 1}, {4, 1}}, shape)),
              ElementsAre(HasSubstr("normalizes over the split dimension")));
  EXPECT_THAT(splits(propagate("aten::triu", {{{4, 8, 8}, 0}}, {{4, 8, 8}})), ElementsAre("0"));
  EXPECT_THAT(splits(propagate("aten::triu", {{{4, 8, 8}, 1}}, {{4, 8, 8}})),
              ElementsAre(HasSubstr("works along the split dimension")));
}

TEST(PropagateSplit, ReductionsOfOtherDimensionsKeepTheSplit) {
  EXPECT_THAT(splits(propagate("aten::sum", {{{4, 12}, 1}}, {{12}}, {numbers("dim", {0})})),
              ElementsAre("0"));
  EXPECT_THAT(splits(propagate("aten::sum", {{{4, 12}, 1}}, {{1, 12}}, {numbers("dim", {0})})),
              ElementsAre("1"));
  EXPECT_THAT(splits(propagate("aten::sum", {{{4, 12}, 1}}, {{4}}, {numbers("dim", {-1})})),
              ElementsAre(HasSubstr("reduces over the split dimension")));
  EXPECT_THAT(splits(propagate("aten::sum", {{{4, 12}, 1}}, {{}})),
              ElementsAre(HasSubstr("reduces over the split dimension")))
      << "without dimensions, over all";
  EXPECT_THAT(splits(propagate("aten::sum", {{{4, 12}, 1}}, {{4}}, {numbers("dim", {-1})}, true)),
              ElementsAre("whole"))
      << "in backward, the gradient of a tensor that is whole";
}

TEST(PropagateSplit, ConcatenationAlongTheSplitKeepsTheShare) {
  EXPECT_THAT(splits(propagate("aten::cat", {{{4, 6}, 1}, {{4, 6}, 1}}, {{8, 6}}, {number("dim", 0)})),
              ElementsAre("1"));
  const Result<SplitResult> joined =
      propagate("aten::cat", {{{4, 6}, 1}, {{4, 6}, 1}}, {{4, 12}}, {number("dim", -1)});
  EXPECT_THAT(splits(joined), ElementsAre("1"));
  EXPECT_EQ(joined->outputs.front().part, 6);
}

TEST(PropagateSplit, AnEmbeddingIsSplitByRowsOrByColumns) {
  const std::vector<std::int64_t> tokens = {2, 8};
  EXPECT_THAT(splits(propagate("aten::embedding", {{{40, 16}, 0}, {tokens}}, {{2, 8, 16}})),
              ElementsAre("partial"));
  EXPECT_THAT(splits(propagate("aten::embedding", {{{40, 16}, 1}, {tokens}}, {{2, 8, 16}})),
              ElementsAre("2"));
  EXPECT_THAT(splits(propagate("aten::embedding_dense_backward", {{{2, 8, 16}, 2}, {tokens}}, {{40, 16}})),
              ElementsAre("1"));
  EXPECT_THAT(splits(propagate("aten::embedding_dense_backward", {{{2, 8, 16}, 1}, {tokens}}, {{40, 16}})),
              ElementsAre(HasSubstr("sums over the split dimension")));
}

TEST(PropagateSplit, AttentionIsSplitByHeads) {
  const std::vector<std::int64_t> heads = {2, 4, 8, 16};
  const char* const name = "aten::_scaled_dot_product_flash_attention";
  EXPECT_THAT(splits(propagate(name, {{heads, 1}, {heads, 1}, {heads, 1}}, {heads, {2, 4, 8}, {}})),
              ElementsAre("1", "1", "whole"));
  EXPECT_THAT(splits(propagate(name, {{heads, 1}, {heads}, {heads, 1}}, {heads})),
              ElementsAre(HasSubstr("one that is whole")));
  EXPECT_THAT(splits(propagate(name, {{heads, 3}, {heads, 3}, {heads, 3}}, {heads})),
              ElementsAre(HasSubstr("attention heads")));
}

TEST(PropagateSplit, AnUnknownOperatorIsRefused) {
  for (const char* name : {"mine::op", "aten::_embedding_bag", ""}) {
    EXPECT_THAT(splits(propagate(name, {{{4, 12}, 1}}, {{4, 12}})), ElementsAre(HasSubstr("no rule")))
        << name;
  }
}

TEST(TakesWeight, IsTheFactorOrTheTableOfALayer) {
  WeightOperand weight;
  ASSERT_TRUE(takes_weight("aten::addmm", 2, weight));
  EXPECT_EQ(weight.columns, 1);
  EXPECT_EQ(weight.rows, 0);
  ASSERT_TRUE(takes_weight("aten::linear", 1, weight));
  EXPECT_EQ(weight.columns, 0) << "transposed";
  EXPECT_EQ(weight.rows, 1);
  ASSERT_TRUE(takes_weight("aten::embedding", 0, weight));
  EXPECT_EQ(weight.operand, 0U);
  EXPECT_FALSE(takes_weight("aten::addmm", 0, weight)) << "the bias";
  EXPECT_FALSE(takes_weight("aten::embedding", 1, weight)) << "the indices";
  EXPECT_FALSE(takes_weight("aten::native_layer_norm", 1, weight));
}

}  // namespace
}  // namespace plimsoll::estimator
