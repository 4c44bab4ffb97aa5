#include "estimator/transformer/gated_delta_mixer.h"

#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

ForwardGraph mix(std::int64_t tokens) {
  const TransformerSpec spec = *spec_of_config(
      R"({"model_type": "qwen3_next", "hidden_size": 64, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
          "linear_key_head_dim": 8, "linear_value_head_dim": 16})",
      tokens, crds::AttentionKind::kSDPA);
  const crds::TrainingSpec training;
  const TransformerPart part;
  ModelBuilder builder(crds::Precision::kFP32);
  ModulePatterns patterns({});
  TransformerContext context{spec, training, part, builder, patterns};
  const TensorId x =
      builder.graph().add_input("x", {per_sample(1), fixed(tokens), fixed(64)}, ElementType::kFP32);
  GatedDeltaMixer(context).run("mixer", x);
  return std::move(builder).graph();
}

std::int64_t count_of(const ForwardGraph& graph, OpKind kind) {
  std::int64_t count = 0;
  for (std::int32_t i = 0; i < graph.op_count(); ++i) {
    count += graph.op(i).kind == kind ? 1 : 0;
  }
  return count;
}

TEST(GatedDeltaMixer, HasAllParameters) {
  const std::int64_t keys = 2 * 8;
  const std::int64_t values = 4 * 16;
  EXPECT_EQ(mix(64).parameter_bytes().count / 4,
            64 * 2 * (keys + values) + 64 * 8 + (2 * keys + values) * 4 + 4 + 4 + 16 + values * 64);
}

TEST(GatedDeltaMixer, ReadsAndWritesItsStateOnceAChunk) {
  const std::int64_t once = count_of(mix(64), OpKind::kMatMul);
  EXPECT_EQ(count_of(mix(65), OpKind::kMatMul), once + 4);  // a second chunk, padded
  EXPECT_EQ(count_of(mix(256), OpKind::kMatMul), once + 3 * 4);
  EXPECT_EQ(count_of(mix(64), OpKind::kSolveTriangular), 2);
}

}  // namespace
}  // namespace plimsoll::estimator
