#include "estimator/kernels/formulas.h"

#include <gtest/gtest.h>

#include "tests/estimator/operator_trace.h"

namespace plimsoll::estimator {
namespace {

using testing::OperatorTrace;

// Of the last operator.
Bytes bytes_of(OperatorTrace& built, Bytes (*formula)(const KernelCall&)) {
  return formula(built.call(built.trace.operators.size() - 1));
}

TEST(KernelFormulas, ElementwiseCastsOperandsOfAnotherType) {
  OperatorTrace built;
  const std::int32_t wide = built.tensor({4, 8});
  const std::int32_t half = built.tensor({4, 8}, "bfloat16");
  const std::int32_t scalar = built.tensor({}, "float64");
  built.add("aten::add", {wide, wide}, {wide});
  EXPECT_EQ(bytes_of(built, formula::elementwise), Bytes{});
  built.add("aten::add", {wide, half}, {wide});
  EXPECT_EQ(bytes_of(built, formula::elementwise), Bytes{32 * 4});
  built.add("aten::add", {half, wide}, {half});
  EXPECT_EQ(bytes_of(built, formula::elementwise), Bytes{32 * 2});
  built.add("aten::mul", {wide, scalar}, {wide});
  EXPECT_EQ(bytes_of(built, formula::elementwise), Bytes{}) << "a scalar is no operand to be cast";
  built.add("aten::add", {wide, half}, {});
  EXPECT_EQ(bytes_of(built, formula::elementwise), Bytes{});
}

TEST(KernelFormulas, AComparisonCastsToItsWidestOperand) {
  OperatorTrace built;
  const std::int32_t result = built.tensor({10}, "bool");
  const std::int32_t wide = built.tensor({10});
  const std::int32_t half = built.tensor({10}, "bfloat16");
  built.add("aten::eq", {half, wide}, {result});
  EXPECT_EQ(bytes_of(built, formula::elementwise), Bytes{10 * 4});
  built.add("aten::eq", {wide, wide}, {result});
  EXPECT_EQ(bytes_of(built, formula::elementwise), Bytes{});
}

TEST(KernelFormulas, BlasCopiesMatricesWithNeitherRowsNorColumnsTogether) {
  OperatorTrace built;
  const std::int32_t plain = built.tensor({4, 6});
  const std::int32_t transposed = built.tensor({4, 6}, "float32", {1, 4});
  const std::int32_t padded_rows = built.tensor({4, 6}, "float32", {16, 1});
  const std::int32_t one_row = built.tensor({1, 6}, "float32", {0, 7});
  const std::int32_t every_second = built.tensor({4, 6}, "float32", {12, 2});
  const std::int32_t repeated = built.tensor({4, 6}, "float32", {0, 0});
  const std::int32_t result = built.tensor({4, 4});
  for (const std::int32_t whole : {plain, transposed, padded_rows, one_row}) {
    built.add("aten::mm", {whole, plain}, {result});
    EXPECT_EQ(bytes_of(built, formula::matrix_copies), Bytes{}) << whole;
  }
  built.add("aten::mm", {every_second, repeated}, {result});
  EXPECT_EQ(bytes_of(built, formula::matrix_copies), Bytes{2 * 24 * 4});
  built.add("aten::addmm", {repeated, plain, plain}, {result});
  EXPECT_EQ(bytes_of(built, formula::matrix_copies), Bytes{}) << "what is added is not a factor";
}

TEST(KernelFormulas, ContiguousInputsCopiesAllThatIsNotRowMajor) {
  OperatorTrace built;
  const std::int32_t plain = built.tensor({4, 6});
  const std::int32_t transposed = built.tensor({4, 6}, "bfloat16", {1, 4});
  built.add("mine::op", {plain, transposed, -1, transposed}, {plain});
  EXPECT_EQ(bytes_of(built, formula::contiguous_inputs), Bytes{2 * 24 * 2});
}

// Inputs and results of the operators as in native_functions.yaml, with three channels of five.
TEST(KernelFormulas, NormalizationsByHand) {
  OperatorTrace built;
  const std::int32_t x = built.tensor({2, 3, 5});
  const std::int32_t channel = built.tensor({3});
  const std::int32_t row = built.tensor({5});
  built.add("aten::native_batch_norm", {x, channel, channel}, {x, channel, channel});
  EXPECT_EQ(bytes_of(built, formula::batch_statistics), Bytes{3 * 2 * 4}) << "mean and variance";
  built.add("aten::native_batch_norm_backward", {x, x}, {x, channel, channel});
  EXPECT_EQ(bytes_of(built, formula::batch_norm_backward), Bytes{2 * 3 * 5 * 4});
  built.add("aten::native_layer_norm_backward", {x, x}, {x, row, row});
  EXPECT_EQ(bytes_of(built, formula::layer_norm_backward), Bytes{5 * 2 * 4 * 4}) << "of four threads";
  built.producer.threads = 0;
  EXPECT_EQ(bytes_of(built, formula::layer_norm_backward), Bytes{5 * 2 * 4}) << "one thread if unknown";
  built.add("aten::native_group_norm_backward", {x, x}, {x, channel, channel});
  EXPECT_EQ(bytes_of(built, formula::group_norm_backward), Bytes{2 * 3 * 2 * 4});
}

TEST(KernelFormulas, EmbeddingsByHand) {
  OperatorTrace built;
  const std::int32_t gradient = built.tensor({OperatorTrace::kBatch, 16});
  const std::int32_t indices = built.tensor({OperatorTrace::kBatch, 7}, "int64");
  built.add("aten::embedding_dense_backward", {gradient, indices}, {built.tensor({100, 16})});
  EXPECT_EQ(formula::embedding_bag_backward(built.call(0, 10)), Bytes{70 * 3 * 8});
  EXPECT_EQ(formula::embedding_sort(built.call(0, 10)), Bytes{70 * 5 * 8});
}

TEST(KernelFormulas, SafeSoftmaxHasABooleanPerElementAndRow) {
  OperatorTrace built;
  const std::int32_t scores = built.tensor({2, 8, 8});
  built.add("aten::_safe_softmax", {scores}, {scores});
  EXPECT_EQ(bytes_of(built, formula::safe_softmax), Bytes{128 + 16});
  const std::int32_t none = built.tensor({2, 0});
  built.add("aten::_safe_softmax", {none}, {none});
  EXPECT_EQ(bytes_of(built, formula::safe_softmax), Bytes{});
}

TEST(KernelFormulas, SoftmaxBackwardHasTheProductOfGradientAndResult) {
  OperatorTrace built;
  const std::int32_t half = built.tensor({2, 8}, "bfloat16");
  const std::int32_t full = built.tensor({2, 8});
  built.add("aten::_softmax_backward_data", {full, full}, {half});
  EXPECT_EQ(bytes_of(built, formula::softmax_backward), Bytes{16 * 4});
  built.add("aten::_softmax_backward_data", {half, half}, {half});
  EXPECT_EQ(bytes_of(built, formula::softmax_backward), Bytes{16 * 2});
}

}  // namespace
}  // namespace plimsoll::estimator
