#include "estimator/speed/operator_work.h"

#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

TEST(OperatorWork, AProductIsTwoFlopsForEachPairAndAsManyForEachGradient) {
  ForwardGraph graph;
  const TensorId x = graph.add_input("x", {per_sample(1), fixed(512)}, ElementType::kBF16);
  const TensorId w = graph.add_parameter("w", {fixed(256), fixed(512)}, ElementType::kBF16);
  graph.apply(OpKind::kLinear, "fc", {x, w}, {per_sample(1), fixed(256)}, ElementType::kBF16);
  const OperatorWork work = work_of(graph, 0, {.batch = 4});
  EXPECT_EQ(work.kind, WorkKind::kMatrix);
  EXPECT_EQ(work.type, ElementType::kBF16);
  EXPECT_DOUBLE_EQ(work.flops, 2.0 * 4 * 512 * 256);
  EXPECT_DOUBLE_EQ(work.backward_flops, work.flops) << "data needs no gradient";
  EXPECT_DOUBLE_EQ(work.bytes, 2.0 * (4 * 512 + 256 * 512 + 4 * 256));
}

TEST(OperatorWork, CausalAttentionIsHalf) {
  ForwardGraph graph;
  const Shape shape = {per_sample(1), fixed(8), fixed(1024), fixed(64)};
  const TensorId q =
      graph.add_parameter("q", {fixed(1), fixed(8), fixed(1024), fixed(64)}, ElementType::kBF16);
  graph.apply(OpKind::kAttention, "sdpa", {q, q, q}, shape, ElementType::kBF16);
  const OperatorWork causal = work_of(graph, 0, {.batch = 1, .causal = true});
  const OperatorWork full = work_of(graph, 0, {.batch = 1, .causal = false});
  EXPECT_DOUBLE_EQ(full.flops, 4.0 * 8 * 1024 * 1024 * 64);
  EXPECT_DOUBLE_EQ(causal.flops, full.flops / 2);
  EXPECT_DOUBLE_EQ(causal.backward_flops, 2.5 * causal.flops);
  EXPECT_EQ(causal.head_dim, 64);
  EXPECT_EQ(causal.tokens, 1024);
}

TEST(OperatorWork, WhatOnlyElementwiseOperatorsReadStaysInRegisters) {
  ForwardGraph graph;
  const Shape shape = {per_sample(1), fixed(64)};
  const TensorId x = graph.add_input("x", shape, ElementType::kFP32);
  const TensorId w = graph.add_parameter("w", {fixed(64), fixed(64)}, ElementType::kFP32);
  const TensorId y = graph.apply(OpKind::kLinear, "fc", {x, w}, shape, ElementType::kFP32);
  const TensorId power = graph.apply(OpKind::kPower, "power", {y}, shape, ElementType::kFP32);
  const TensorId silu = graph.apply(OpKind::kSilu, "silu", {power}, shape, ElementType::kFP32);
  graph.apply(OpKind::kLinear, "fc2", {silu, w}, shape, ElementType::kFP32);
  const std::vector<bool> in_registers = tensors_in_registers(graph, Fusion::kCompiled);
  EXPECT_TRUE(in_registers[static_cast<std::size_t>(power)]);
  EXPECT_FALSE(in_registers[static_cast<std::size_t>(y)]);
  EXPECT_FALSE(in_registers[static_cast<std::size_t>(silu)]) << "a product reads it";
  EXPECT_DOUBLE_EQ(work_of(graph, 1, {.batch = 2, .in_registers = in_registers}).bytes, 4.0 * 2 * 64);
  EXPECT_DOUBLE_EQ(work_of(graph, 1, {.batch = 2}).bytes, 2 * 4.0 * 2 * 64);
}

TEST(OperatorWork, MegatronWritesWhatTheDropoutOfScoresReads) {
  ForwardGraph graph;
  const Shape scores = {per_sample(1), fixed(8), fixed(64), fixed(64)};
  const TensorId x = graph.add_input("x", scores, ElementType::kBF16);
  const TensorId softmax = graph.apply(OpKind::kSoftmax, "softmax", {x}, scores, ElementType::kBF16);
  graph.apply(OpKind::kDropout, "dropout", {softmax}, scores, ElementType::kBF16);
  EXPECT_TRUE(tensors_in_registers(graph, Fusion::kCompiled)[static_cast<std::size_t>(softmax)]);
  EXPECT_FALSE(tensors_in_registers(graph, Fusion::kMegatron)[static_cast<std::size_t>(softmax)]);
}

// 6 rows of two experts: a product of 8 values to 2 x 4 with biases, its halves, and the sum of 4 values and the second bias.
TEST(OperatorWork, MegatronAddsTheBiasesOfExpertsInManyPasses) {
  ForwardGraph graph;
  constexpr ElementType kHalf = ElementType::kBF16;
  const Shape rows = {per_sample(3), fixed(4)};
  const TensorId x = graph.add_input("x", {per_sample(3), fixed(8)}, kHalf);
  const TensorId w = graph.add_parameter("w", {fixed(2), fixed(8), fixed(8)}, kHalf);
  const TensorId b = graph.add_parameter("b", {fixed(2), fixed(8)}, kHalf);
  const TensorId both = graph.apply(OpKind::kLinear, "up", {x, w, b}, {per_sample(3), fixed(8)}, kHalf);
  const std::vector<TensorId> halves = graph.split("chunk", both, {rows, rows}, {1, 1});
  const TensorId down = graph.add_parameter("down", {fixed(2), fixed(4)}, kHalf);
  graph.apply(OpKind::kAdd, "biased", {halves[0], down}, rows, kHalf);
  const auto of = [&](std::int32_t op, Fusion fusion) {
    return work_of(graph, op, {.batch = 2, .fusion = fusion});
  };
  EXPECT_EQ(of(1, Fusion::kNone).kind, WorkKind::kNone);
  EXPECT_DOUBLE_EQ(of(1, Fusion::kMegatron).bytes, 6 * 8 * (4.0 + 4 + 2));
  EXPECT_DOUBLE_EQ(of(1, Fusion::kMegatron).backward_bytes, 6 * 8 * 14.0);
  EXPECT_DOUBLE_EQ(of(2, Fusion::kNone).bytes, 2.0 * (6 * 4 + 2 * 4 + 6 * 4));
  EXPECT_DOUBLE_EQ(of(2, Fusion::kMegatron).bytes, 6 * 4 * 28.0);
  EXPECT_DOUBLE_EQ(of(2, Fusion::kMegatron).backward_bytes, 6 * 4 * 40.0);
}

TEST(OperatorWork, AKernelOfItsOwnSumsTheGradientsOfRows) {
  ForwardGraph graph;
  const Shape shape = {per_sample(1), fixed(64)};
  const TensorId x = graph.add_parameter("x", {fixed(2), fixed(64)}, ElementType::kBF16);
  const TensorId w = graph.add_parameter("w", {fixed(64), fixed(64)}, ElementType::kBF16);
  const TensorId b = graph.add_parameter("b", {fixed(64)}, ElementType::kBF16);
  graph.apply(OpKind::kLinear, "fc", {x, w, b}, shape, ElementType::kBF16);
  graph.apply(OpKind::kLayerNorm, "norm", {x, b, b}, shape, ElementType::kBF16);
  EXPECT_DOUBLE_EQ(work_of(graph, 0, {.batch = 2}).bias_bytes, 2.0 * 2 * 64);
  const OperatorWork norm = work_of(graph, 1, {.batch = 2});
  EXPECT_EQ(norm.traffic, Traffic::kNorm);
  EXPECT_DOUBLE_EQ(norm.backward_bytes, 2.0 * (2 * (2 * 64 + 2 * 64 + 2 * 64) + 2 * 64 + 2 * 64))
      << "twice what it reads";
}

TEST(OperatorWork, ALossPicksOneValueOfARow) {
  ForwardGraph graph;
  const TensorId logits = graph.add_parameter("logits", {fixed(64), fixed(1000)}, ElementType::kFP32);
  const TensorId labels = graph.add_input("labels", {fixed(64)}, ElementType::kInt64);
  graph.apply(OpKind::kNllLoss, "loss", {logits, labels}, {fixed(1)}, ElementType::kFP32);
  const OperatorWork work = work_of(graph, 0, {.batch = 1});
  EXPECT_DOUBLE_EQ(work.bytes, 2 * 4.0);
  EXPECT_NEAR(work.backward_bytes, 4.0 * 64 * 1000, 100) << "its gradient is whole";
}

TEST(OperatorWork, AViewIsFree) {
  ForwardGraph graph;
  const TensorId x = graph.add_input("x", {per_sample(1), fixed(64)}, ElementType::kFP32);
  graph.view("view", x, {per_sample(64)});
  EXPECT_EQ(work_of(graph, 0, {.batch = 2}).kind, WorkKind::kNone);
}

}  // namespace
}  // namespace plimsoll::estimator
