#include "estimator/transformer/transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace plimsoll::estimator {
namespace {

using crds::ActivationCheckpointing;
using ::testing::HasSubstr;

// A decoder of four layers.
TransformerSpec small() {
  crds::TransformerModel model;
  model.layers = 4;
  model.hidden = 128;
  model.heads = 8;
  model.kv_heads = 4;
  model.ffn = 256;
  model.vocab = 512;
  model.sequence_length = 64;
  return *transformer_spec(model);
}
constexpr std::int64_t kNorms = 2 * 128;  // of a layer
constexpr std::int64_t kAttention =
    128 * 128 + 2 * 128 * 64 + 128 * 128;     // 4 of 8 heads have keys and values
constexpr std::int64_t kMlp = 3 * 128 * 256;  // SwiGLU has three matrices
constexpr std::int64_t kEmbedding = 512 * 128;

Result<ForwardGraph> lower(const TransformerSpec& spec, const TransformerPart& part = {},
                           const crds::TrainingSpec& training = {.batch_size_per_trainer = 1}) {
  return lower_transformer(spec, training, part);
}

std::int64_t parameters(const TransformerSpec& spec, const TransformerPart& part = {}) {
  const Result<ForwardGraph> graph = lower(spec, part);
  EXPECT_TRUE(graph.ok()) << to_string(graph.error());
  return graph.ok() ? graph->parameter_bytes().count / 4 : 0;
}

std::int64_t count_of(const ForwardGraph& graph, OpKind kind) {
  std::int64_t count = 0;
  for (std::int32_t i = 0; i < graph.op_count(); ++i) {
    count += graph.op(i).kind == kind ? 1 : 0;
  }
  return count;
}

TEST(LowerTransformer, HasAllParameters) {
  EXPECT_EQ(parameters(small()), 4 * (kAttention + kMlp + kNorms) + 128 + 2 * kEmbedding);
}

TEST(LowerTransformer, TheHeadMayBeTheEmbedding) {
  TransformerSpec tied = small();
  tied.tied = true;
  EXPECT_EQ(parameters(small()) - parameters(tied), kEmbedding);
}

TEST(LowerTransformer, StagesOfAPipelineAreTheModelTogether) {
  const std::int64_t first = parameters(small(), {.first_layer = 0, .last_layer = 1, .predicts = false});
  const std::int64_t middle =
      parameters(small(), {.first_layer = 1, .last_layer = 3, .embeds = false, .predicts = false});
  const std::int64_t last = parameters(small(), {.first_layer = 3, .embeds = false});
  EXPECT_EQ(middle, 2 * (kAttention + kMlp + kNorms));
  EXPECT_EQ(first + middle + last, parameters(small()));
}

TEST(LowerTransformer, TensorParallelismSplitsAllButTheNorms) {
  const std::int64_t norms = 4 * kNorms + 128;
  EXPECT_EQ(parameters(small(), {.tensor = 2}) - norms, (parameters(small()) - norms) / 2);
}

// The input of a layer's products and the gradient of their sum, and not those of the output layer.
TEST(LowerTransformer, Float8GathersLayersIn8BitsAndTheHeadIn16) {
  crds::TrainingSpec training{.batch_size_per_trainer = 1};
  training.precision = crds::Precision::kBF16;
  training.float8 = crds::Float8::kLinear;
  const Result<ForwardGraph> graph = lower(small(), {.tensor = 2, .sequence = true}, training);
  ASSERT_TRUE(graph.ok()) << to_string(graph.error());
  int of_layers = 0;
  int scattered = 0;
  for (std::int32_t i = 0; i < graph->op_count(); ++i) {
    const Op op = graph->op(i);
    if (op.kind == OpKind::kAllGather) {
      const Tensor& gathered = graph->tensor(op.outputs[0]);
      const bool head = graph->name_of(op.outputs[0]).starts_with("head");
      of_layers += head ? 0 : 1;
      EXPECT_EQ(gathered.type, head ? ElementType::kBF16 : ElementType::kFP8);
      EXPECT_EQ(gathered.gradient_type.value_or(gathered.type), ElementType::kBF16);
    } else if (op.kind == OpKind::kReduceScatter) {
      const Tensor& sum = graph->tensor(op.inputs[0]);
      EXPECT_EQ(sum.type, ElementType::kBF16);
      scattered += sum.gradient_type == ElementType::kFP8 ? 1 : 0;
    }
  }
  EXPECT_EQ(of_layers, 8) << "of attention and of the feed-forward network of four layers";
  EXPECT_EQ(scattered, 8);
}

TEST(LowerTransformer, MoreTrainersThanKeyHeadsHaveOneEach) {
  // 8 trainers of 4 key heads: one query head and one key head of 16 on each.
  const std::int64_t attention = 128 * 16 + 2 * 128 * 16 + 16 * 128;
  const std::int64_t stage =
      parameters(small(), {.tensor = 8, .last_layer = 1, .embeds = false, .predicts = false});
  EXPECT_EQ(stage, attention + kMlp / 8 + kNorms);
}

TEST(LowerTransformer, ExpertsAreDividedAndTheRouterIsNot) {
  TransformerSpec sparse = small();
  sparse.experts = 8;
  sparse.experts_per_token = 2;
  sparse.expert_ffn = 256;
  const TransformerPart layer = {.last_layer = 1, .embeds = false, .predicts = false};
  TransformerPart quarter = layer;
  quarter.expert = 4;
  const std::int64_t router = 128 * 8;
  EXPECT_EQ(parameters(sparse, layer), kAttention + kNorms + router + 8 * kMlp);
  EXPECT_EQ(parameters(sparse, quarter), kAttention + kNorms + router + 2 * kMlp);
  EXPECT_EQ(count_of(*lower(sparse, quarter), OpKind::kAllToAll), 2);  // to the experts and back
}

TEST(LowerTransformer, OnlyEagerAttentionHasScores) {
  TransformerSpec eager = small();
  eager.attention = crds::AttentionKind::kEager;
  const ForwardGraph scores = *lower(eager);
  EXPECT_EQ(count_of(scores, OpKind::kSoftmax), 4);
  EXPECT_EQ(count_of(scores, OpKind::kAttention), 0);
  const ForwardGraph fused = *lower(small(), {.device = Device::kCpu});
  EXPECT_EQ(count_of(fused, OpKind::kSoftmax), 0);
  EXPECT_EQ(count_of(fused, OpKind::kAttention), 4);
}

std::set<std::int32_t> blocks_of(const ForwardGraph& graph) {
  std::set<std::int32_t> blocks;
  for (std::int32_t i = 0; i < graph.op_count(); ++i) {
    blocks.insert(graph.op(i).block);
  }
  blocks.erase(-1);
  return blocks;
}

TEST(LowerTransformer, CheckpointingMakesEachLayerABlock) {
  EXPECT_TRUE(blocks_of(*lower(small())).empty());
  EXPECT_EQ(blocks_of(*lower(small(), {},
                             {.batch_size_per_trainer = 1,
                              .activation_checkpointing = ActivationCheckpointing::kFull}))
                .size(),
            4U);
  EXPECT_EQ(blocks_of(*lower(small(), {},
                             {.batch_size_per_trainer = 1,
                              .activation_checkpointing = ActivationCheckpointing::kPerModule,
                              .checkpoint_modules = {"layers.1", "layers.*.mlp"}}))
                .size(),
            4U)
      << "the second layer, and the MLPs of the others";
}

TEST(LowerTransformer, SizesThatDoNotDivideAreNamed) {
  TransformerSpec sparse = small();
  sparse.experts = 8;
  sparse.experts_per_token = 2;
  sparse.expert_ffn = 256;
  const auto refused = [&](const TransformerPart& part, const char* text) {
    const Result<ForwardGraph> graph = lower(sparse, part);
    ASSERT_FALSE(graph.ok()) << text;
    EXPECT_EQ(graph.error().code, ErrorCode::kInvalid);
    EXPECT_THAT(graph.error().message, HasSubstr(text));
  };
  refused({.tensor = 3}, "heads");
  refused({.context = 5}, "seqLen");
  refused({.tensor = 8, .sequence = true, .context = 16}, "tokens a trainer");  // 4 tokens for 8
  refused({.expert = 3}, "experts");
  const Result<ForwardGraph> dense = lower(small(), {.expert = 2});
  ASSERT_FALSE(dense.ok());
  EXPECT_THAT(dense.error().message, HasSubstr("has no experts"));
}

TEST(LowerTransformer, ModulesThatMatchNothingAreNamed) {
  const Result<ForwardGraph> graph = lower(small(), {},
                                           {.batch_size_per_trainer = 1,
                                            .activation_checkpointing = ActivationCheckpointing::kPerModule,
                                            .checkpoint_modules = {"layers.0", "layers.4"}});
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(graph.error().message, HasSubstr("matches layers.4"));
}

TEST(LowerTransformer, TooManyLayersExceedTheBudget) {
  TransformerSpec deep = small();
  deep.layers = 1 << 16;
  Budget budget({.memory = 1_MiB});
  EXPECT_THROW(lower_transformer(deep, {.batch_size_per_trainer = 1}, {}, &budget), BudgetExceeded);
}

}  // namespace
}  // namespace plimsoll::estimator
