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
ForwardGraph attend(const TransformerSpec& spec, bool sliding = false, const TransformerPart& part = {},
                    crds::Precision precision = crds::Precision::kFP32) {
  const crds::TrainingSpec training;
  ModelBuilder builder(precision);
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

// Llama in fp32 took 47 % more on an H100 than a kernel would. Cards before Ampere have no flash kernel at all.
TEST(TransformerAttention, GroupedHeadsWithoutAFlashKernelHaveScoresOnCuda) {
  using crds::Precision;
  TransformerSpec grouped = small();
  grouped.kv_heads = 2;
  const auto scores = [&](Precision precision, const TransformerPart& part = {}) {
    return count_of(attend(grouped, false, part, precision), OpKind::kSoftmax);
  };
  EXPECT_EQ(scores(Precision::kFP32), 1);
  EXPECT_EQ(scores(Precision::kTF32), 1);
  EXPECT_EQ(scores(Precision::kBF16), 0);
  EXPECT_EQ(scores(Precision::kFP16Mixed), 0);
  EXPECT_EQ(scores(Precision::kFP16Mixed, {.has_flash = false}), 1);
  EXPECT_EQ(scores(Precision::kFP32, {.device = Device::kCpu}), 0);
  EXPECT_EQ(count_of(attend(small()), OpKind::kSoftmax), 0) << "as many keys as queries";
  grouped.sliding = {true};
  grouped.window = 16;
  EXPECT_EQ(count_of(attend(grouped, true), OpKind::kSoftmax), 0) << "with a mask keys are repeated";
}

TEST(TransformerAttention, ScoresWithoutAKernelAreInFloat) {
  TransformerSpec grouped = small();
  grouped.kv_heads = 2;
  const ForwardGraph graph = attend(grouped, false, {.has_flash = false}, crds::Precision::kFP16Mixed);
  for (std::int32_t i = 0; i < graph.op_count(); ++i) {
    if (graph.op(i).kind == OpKind::kSoftmax) {
      EXPECT_EQ(graph.tensor(graph.op(i).outputs[0]).type, ElementType::kFP32);
    }
  }
}

// T5, BERT, GPT-2: softmax without a type.
TEST(TransformerAttention, ASoftmaxWithoutATypeIsInFloatOnlyUnderAutocastOnCuda) {
  using crds::Precision;
  TransformerSpec spec = small();
  spec.attention = crds::AttentionKind::kEager;
  const auto type = [&](Precision precision, Device device) {
    const ForwardGraph graph = attend(spec, false, {.device = device}, precision);
    for (std::int32_t i = 0; i < graph.op_count(); ++i) {
      if (graph.op(i).kind == OpKind::kSoftmax) {
        return graph.tensor(graph.op(i).outputs[0]).type;
      }
    }
    return ElementType::kInt64;
  };
  EXPECT_EQ(type(Precision::kBF16, Device::kCuda), ElementType::kFP32) << "Llama's has one";
  spec.float_softmax = false;
  EXPECT_EQ(type(Precision::kBF16, Device::kCuda), ElementType::kBF16);
  EXPECT_EQ(type(Precision::kBF16Mixed, Device::kCuda), ElementType::kFP32);
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
