#include "estimator/transformer/transformer_attention.h"

#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

TransformerSpec small() {
  crds::TransformerModel model;
  model.layers = 1;
  model.hidden = 64;
  model.heads = 4;
  model.ffn = 128;
  model.vocab = 100;
  model.sequence_length = 16;
  return *transformer_spec(model);
}

// The operators of one attention over 16 tokens.
ForwardGraph attend(const TransformerSpec& spec, bool sliding = false, const TransformerPart& part = {}) {
  const crds::TrainingSpec training;
  ModelBuilder builder(crds::Precision::kFP32);
  ModulePatterns patterns({});
  TransformerContext context{spec, training, part, builder, patterns};
  TransformerAttention attention(context);
  const TensorId x = builder.graph().add_input("x", {per_sample(1), fixed(16 / part.context), fixed(64)},
                                               ElementType::kFP32);
  attention.prepare(true);
  attention.run("attention", x, {.memory = x, .rotary = true, .sliding = sliding});
  return std::move(builder).graph();
}

std::int64_t count_of(const ForwardGraph& graph, OpKind kind) {
  std::int64_t count = 0;
  for (std::int32_t i = 0; i < graph.op_count(); ++i) {
    count += graph.op(i).kind == kind ? 1 : 0;
  }
  return count;
}

TEST(TransformerAttention, AKernelHasNoScores) {
  EXPECT_EQ(count_of(attend(small()), OpKind::kAttention), 1);
  TransformerSpec eager = small();
  eager.attention = crds::AttentionKind::kEager;
  EXPECT_EQ(count_of(attend(eager), OpKind::kAttention), 0);
  EXPECT_EQ(count_of(attend(eager), OpKind::kSoftmax), 1);
}

// gpt_neox, phi, stablelm and deepseek concatenate their queries, which are then stored head by head.
TEST(TransformerAttention, ConcatenatedQueriesMakeTheKernelsResultACopy) {
  EXPECT_EQ(count_of(attend(small()), OpKind::kCopy), 0);
  TransformerSpec partial = small();
  partial.partial_rotary = true;
  partial.rotary_dim = 8;
  EXPECT_EQ(count_of(attend(partial), OpKind::kCopy), 1);
}

// A kernel passes keys and values around a ring, in one tensor; scores need all of them at once.
TEST(TransformerAttention, TokensOfSeveralTrainersAreAttendedToInARing) {
  const ForwardGraph ring = attend(small(), false, {.context = 2});
  EXPECT_EQ(count_of(ring, OpKind::kRingAttention), 1);
  EXPECT_EQ(count_of(ring, OpKind::kAllGather), 1);
  EXPECT_EQ(count_of(ring, OpKind::kAttention), 0);
  TransformerSpec eager = small();
  eager.attention = crds::AttentionKind::kEager;
  EXPECT_EQ(count_of(attend(eager, false, {.context = 2}), OpKind::kRingAttention), 0);
  EXPECT_EQ(count_of(attend(eager, false, {.context = 2}), OpKind::kAllGather), 2);
}

TEST(TransformerAttention, AWindowIsAMaskOnlyIfTokensLieBeyondIt) {
  TransformerSpec spec = small();
  spec.sliding = {true};
  spec.window = 17;
  EXPECT_EQ(count_of(attend(spec, true), OpKind::kCast), 0);
  spec.window = 16;
  EXPECT_EQ(count_of(attend(spec, true), OpKind::kCast), 1);
  EXPECT_EQ(count_of(attend(spec, false), OpKind::kCast), 0);
}

TEST(TransformerAttention, EachHeadsNormHasItsOwnWeight) {
  TransformerSpec spec = small();
  spec.qk_norm = QkNorm::kEachHead;
  EXPECT_EQ(attend(spec).parameter_bytes() - attend(small()).parameter_bytes(), Bytes{2 * 64 * 4});
  EXPECT_EQ(count_of(attend(spec), OpKind::kLayerNorm), 8);
}

}  // namespace
}  // namespace plimsoll::estimator
