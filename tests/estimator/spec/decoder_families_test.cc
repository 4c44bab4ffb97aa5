#include "estimator/spec/decoder_families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "estimator/spec/hugging_face_config.h"

namespace plimsoll::estimator {
namespace {

using ::testing::HasSubstr;

// Defaults and differences are those of transformers/models/<family>/.
TransformerSpec read(const std::string& model_type, const std::string& more = "") {
  const Result<TransformerSpec> spec =
      read_hugging_face_config(R"({"model_type": ")" + model_type + "\"" + more + "}");
  EXPECT_TRUE(spec.ok()) << model_type << more << ": " << (spec ? "" : to_string(spec.error()));
  return spec ? *spec : TransformerSpec{};
}

void expect_refused(const std::string& model_type, const std::string& more, const std::string& text) {
  const Result<TransformerSpec> spec =
      read_hugging_face_config(R"({"model_type": ")" + model_type + "\"" + more + "}");
  ASSERT_FALSE(spec.ok()) << model_type << more;
  EXPECT_THAT(spec.error().message, HasSubstr(text));
}

TEST(DecoderFamilies, GemmaScalesItsEmbeddings) {
  const TransformerSpec spec = read("gemma");
  EXPECT_EQ(spec.layers, 28);
  EXPECT_EQ(spec.head_dim, 256);
  EXPECT_TRUE(spec.scaled_embedding);
  EXPECT_TRUE(spec.tied);
  EXPECT_EQ(spec.rms_form, RmsForm::kGemma);
  expect_refused("gemma", R"(, "use_bidirectional_attention": true)", "use_bidirectional_attention");
}

TEST(DecoderFamilies, Gemma2AlternatesWindowsAndCapsScores) {
  const TransformerSpec spec = read("gemma2", R"(, "num_hidden_layers": 3)");
  EXPECT_EQ(spec.sliding, (std::vector<bool>{true, false, true}));
  EXPECT_EQ(spec.window, 4096);
  EXPECT_TRUE(spec.softcapped_scores);
  EXPECT_TRUE(spec.softcapped_logits);
  EXPECT_FALSE(read("gemma2", R"(, "attn_logit_softcapping": null)").softcapped_scores);
  EXPECT_EQ(spec.norm_place, NormPlace::kAround);
}

TEST(DecoderFamilies, Gemma3HasAPatternOrAListOfLayers) {
  const TransformerSpec spec = read("gemma3_text", R"(, "num_hidden_layers": 7)");
  EXPECT_EQ(spec.sliding, (std::vector<bool>{true, true, true, true, true, false, true}));
  EXPECT_TRUE(spec.sliding_rotary);
  const std::string two = R"(, "num_hidden_layers": 2, "layer_types": )";
  EXPECT_EQ(read("gemma3_text", two + R"(["full_attention", "sliding_attention"])").sliding,
            (std::vector<bool>{false, true}));
  expect_refused("gemma3_text", two + R"(["full_attention"])", "layer_types must be a list");
  expect_refused("gemma3_text", two + R"(["full_attention", 3])", "layer_types must have only");
  expect_refused("gemma3_text", two + "7", "layer_types must be a list");
  expect_refused("gemma3_text", R"(, "sliding_window_pattern": 0)",
                 "sliding_window_pattern must be at least 1");
}

TEST(DecoderFamilies, PhiHasOneNormForBothParts) {
  const TransformerSpec spec = read("phi", R"(, "qk_layernorm": true)");
  EXPECT_EQ(spec.residual, Residual::kParallelSharedNorm);
  EXPECT_EQ(spec.rotary_dim, 32);  // half of 64
  EXPECT_EQ(spec.qk_norm, QkNorm::kHeadsLayerNorm);
  EXPECT_TRUE(spec.head_bias);
}

TEST(DecoderFamilies, Phi3HasFusedProjections) {
  const TransformerSpec spec = read("phi3");
  EXPECT_EQ(spec.fused_qkv, FusedQkv::kSlices);
  EXPECT_TRUE(spec.fused_gate);
  EXPECT_FALSE(spec.all_slide);
  EXPECT_TRUE(read("phi3", R"(, "sliding_window": 2047)").all_slide);
}

TEST(DecoderFamilies, GptNeoXMayBeParallel) {
  EXPECT_EQ(read("gpt_neox").residual, Residual::kParallel);
  EXPECT_EQ(read("gpt_neox", R"(, "use_parallel_residual": false)").residual, Residual::kSequential);
  EXPECT_EQ(read("gpt_neox").rotary_dim, 24);  // a quarter of 96
  EXPECT_EQ(read("gpt_neox", R"(, "rotary_pct": 0.5)").rotary_dim, 48);
  EXPECT_EQ(read("gpt_neox", R"(, "rope_parameters": {"partial_rotary_factor": 1.0})").rotary_dim, 96);
  expect_refused("gpt_neox", R"(, "rotary_pct": 2)", "partial_rotary_factor must be");
  expect_refused("gpt_neox", R"(, "rope_parameters": {"partial_rotary_factor": "x"})",
                 "partial_rotary_factor must be");
}

TEST(DecoderFamilies, StableLMDropsOnlyTheFeedForwardResult) {
  const TransformerSpec spec = read("stablelm", R"(, "qk_layernorm": true, "use_qkv_bias": true)");
  EXPECT_EQ(spec.qk_norm, QkNorm::kEachHead);
  EXPECT_FALSE(spec.drops_attention_result);
  EXPECT_TRUE(spec.qkv_bias);
  EXPECT_FALSE(spec.out_bias);
}

TEST(DecoderFamilies, Olmo2HasNormsAfterItsParts) {
  const TransformerSpec spec = read("olmo2");
  EXPECT_EQ(spec.norm_place, NormPlace::kAfter);
  EXPECT_EQ(spec.qk_norm, QkNorm::kWhole);
}

TEST(DecoderFamilies, OptMayProjectItsEmbeddings) {
  const TransformerSpec spec = read("opt", R"(, "word_embed_proj_dim": 512, "do_layer_norm_before": false)");
  EXPECT_EQ(spec.embedding_dim, 512);
  EXPECT_EQ(spec.norm_place, NormPlace::kAfterSum);
  EXPECT_FALSE(spec.final_norm);
  EXPECT_EQ(spec.unused_positions, 2);
  EXPECT_EQ(spec.activation, Activation::kRelu);
  expect_refused("opt", R"(, "layerdrop": 0.1)", "layerdrop");
  expect_refused("opt", R"(, "layer_norm_elementwise_affine": false)", "layer_norm_elementwise_affine");
}

TEST(DecoderFamilies, FalconSharesKeysInThreeWays) {
  EXPECT_EQ(read("falcon").fused_qkv, FusedQkv::kMultiQuery);
  EXPECT_EQ(read("falcon").kv_heads, 1);
  const TransformerSpec newer =
      read("falcon", R"(, "new_decoder_architecture": true, "num_attention_heads": 64, "num_kv_heads": 8)");
  EXPECT_EQ(newer.fused_qkv, FusedQkv::kGroups);
  EXPECT_EQ(newer.kv_heads, 8);
  EXPECT_EQ(newer.residual, Residual::kParallel);
  EXPECT_EQ(read("falcon", R"(, "multi_query": false)").fused_qkv, FusedQkv::kThirds);
  expect_refused("falcon", R"(, "alibi": true)", "alibi is supported only as false");
}

TEST(DecoderFamilies, BloomHasOnlyEagerAttention) {
  const std::string bloom = R"({"model_type": "bloom", "n_layer": 3, "n_embed": 128})";
  const Result<TransformerSpec> spec = spec_of_config(bloom, 64, crds::AttentionKind::kSDPA);
  ASSERT_TRUE(spec.ok()) << to_string(spec.error());
  EXPECT_EQ(spec->layers, 3);
  EXPECT_EQ(spec->hidden, 128);
  EXPECT_EQ(spec->attention, crds::AttentionKind::kEager);  // what transformers chooses
  const Result<TransformerSpec> flash = spec_of_config(bloom, 64, crds::AttentionKind::kFlash);
  ASSERT_FALSE(flash.ok());
  EXPECT_THAT(flash.error().message, HasSubstr("no Flash attention in transformers, only Eager"));
}

TEST(DecoderFamilies, MambaHasAStateSpace) {
  const TransformerSpec spec = read("mamba", R"(, "time_step_rank": "auto", "hidden_size": 100)");
  EXPECT_EQ(spec.state_space.inner, 200);
  EXPECT_EQ(spec.state_space.rank, 7);  // a sixteenth of 100, rounded up
  EXPECT_EQ(spec.state_space.state, 16);
  EXPECT_EQ(read("mamba", R"(, "time_step_rank": 48)").state_space.rank, 48);
  expect_refused("mamba", R"(, "time_step_rank": "many")", "time_step_rank must be an integer");
  expect_refused("mamba", R"(, "expand": 0)", "expand x hidden_size must be at least 1");
  expect_refused("mamba", R"(, "hidden_act": "gelu")", "hidden_act is supported only as silu");
}

TEST(DecoderFamilies, Llama4AlternatesChunksAndExperts) {
  const TransformerSpec spec =
      read("llama4_text", R"(, "num_hidden_layers": 4, "interleave_moe_layer_step": 2)");
  EXPECT_EQ(spec.sliding, (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(spec.without_rotary, (std::vector<bool>{false, false, false, true}));
  EXPECT_FALSE(spec.kind_of(0).sparse);
  EXPECT_TRUE(spec.kind_of(1).sparse);
  EXPECT_FALSE(spec.uniform());
  EXPECT_EQ(spec.ffn, 16384);
  EXPECT_EQ(spec.expert_ffn, 8192);
  expect_refused("llama4_text", R"(, "num_hidden_layers": 2, "moe_layers": [1])", "moe_layers");
  expect_refused("llama4_text", R"(, "num_hidden_layers": 2, "no_rope_layers": [0, 1])", "no_rope_layers");
  expect_refused("llama4_text", R"(, "no_rope_layer_interval": 0)",
                 "no_rope_layer_interval must be at least 1");
}

TEST(DecoderFamilies, Qwen3NextAlternatesLinearAttention) {
  const TransformerSpec spec = read("qwen3_next", R"(, "num_hidden_layers": 4)");
  EXPECT_EQ(spec.linear, (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(spec.delta.value_heads, 32);
  EXPECT_TRUE(spec.gated_attention);
  EXPECT_EQ(spec.rotary_dim, 64);
  const Result<TransformerSpec> uneven = spec_of_config(
      R"({"model_type": "qwen3_next", "linear_num_key_heads": 3})", 64, crds::AttentionKind::kSDPA);
  ASSERT_FALSE(uneven.ok());
  EXPECT_THAT(uneven.error().message, HasSubstr("linear_num_value_heads must be a multiple"));
}

TEST(DecoderFamilies, UnknownActivationsAreNamed) {
  expect_refused("phi", R"(, "hidden_act": "mish")", "\"mish\" is not known; known are silu");
}

TEST(DecoderFamilies, ManyLayersAreRefusedBeforeTheyAreListed) {
  EXPECT_TRUE(read("gemma2", R"(, "num_hidden_layers": 900000000000)").sliding.empty());
}

}  // namespace
}  // namespace plimsoll::estimator
