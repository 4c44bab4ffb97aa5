#include "estimator/spec/hugging_face_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace plimsoll::estimator {
namespace {

using ::testing::HasSubstr;

// Defaults are those of transformers/models/<family>/configuration_<family>.py.

TransformerSpec read(const std::string& config) {
  const Result<TransformerSpec> spec = read_hugging_face_config(config);
  EXPECT_TRUE(spec.ok()) << config << ": " << to_string(spec.error());
  return spec.ok() ? *spec : TransformerSpec{};
}

void expect_refused(const std::string& config, const std::string& text) {
  const Result<TransformerSpec> spec = read_hugging_face_config(config);
  ASSERT_FALSE(spec.ok()) << config;
  EXPECT_EQ(spec.error().code, ErrorCode::kInvalid) << config;
  EXPECT_THAT(spec.error().message, HasSubstr(text)) << config;
}

// A config.json of Llama's keys, for a family, with more keys.
std::string llama(const std::string& model_type, const std::string& more = "") {
  return R"({"model_type": ")" + model_type +
         R"(", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 99, "num_attention_heads": 4, )"
         R"("intermediate_size": 96)" +
         more + "}";
}

TEST(HuggingFaceConfig, GPT2HasDefaultsForAll) {
  const TransformerSpec spec = read(R"({"model_type": "gpt2"})");
  EXPECT_EQ(spec.layers, 12);
  EXPECT_EQ(spec.hidden, 768);
  EXPECT_EQ(spec.vocab, 50257);
  EXPECT_EQ(spec.head_dim, 64);
  EXPECT_EQ(spec.ffn, 4 * 768);
  EXPECT_EQ(spec.activation, Activation::kGeluNew);
  EXPECT_EQ(spec.positions, Positions::kLearned);
  EXPECT_EQ(spec.max_positions, 1024);
  EXPECT_EQ(spec.residual_dropout, 0.1);
  EXPECT_EQ(spec.fused_qkv, FusedQkv::kSplit);
  EXPECT_TRUE(spec.tied);
}

TEST(HuggingFaceConfig, LlamaNeedsItsSizes) {
  const TransformerSpec spec = read(llama("llama"));
  EXPECT_EQ(spec.kv_heads, 4);
  EXPECT_EQ(spec.head_dim, 16);
  EXPECT_TRUE(spec.gated);
  EXPECT_FALSE(spec.tied);
  EXPECT_EQ(spec.norm, crds::Normalization::kRMSNorm);
  EXPECT_EQ(read(llama("mistral", R"(, "num_key_value_heads": 2)")).kv_heads, 2);
  expect_refused(R"({"model_type": "llama", "num_hidden_layers": 2})", "hidden_size is missing");
}

TEST(HuggingFaceConfig, QwenHasBiasesOrNorms) {
  const TransformerSpec second = read(llama("qwen2"));
  EXPECT_TRUE(second.qkv_bias);
  EXPECT_FALSE(second.out_bias);
  const TransformerSpec third = read(llama("qwen3"));
  EXPECT_FALSE(third.qkv_bias);
  EXPECT_EQ(third.qk_norm, QkNorm::kHeads);
  EXPECT_EQ(third.head_dim, 128);  // whatever the hidden size
}

TEST(HuggingFaceConfig, MixtureOfExperts) {
  const TransformerSpec mixtral = read(llama("mixtral"));
  EXPECT_EQ(mixtral.experts, 8);
  EXPECT_EQ(mixtral.experts_per_token, 2);
  EXPECT_EQ(mixtral.expert_ffn, 96);
  EXPECT_TRUE(mixtral.weights_sum_to_one);
  const std::string sparse = R"(, "num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 32)";
  const TransformerSpec qwen = read(llama("qwen3_moe", sparse));
  EXPECT_EQ(qwen.experts, 16);
  EXPECT_EQ(qwen.expert_ffn, 32);
  EXPECT_FALSE(qwen.weights_sum_to_one);
  EXPECT_EQ(read(llama("qwen3_moe", sparse + R"(, "decoder_sparse_step": 2)")).sparse_step, 2);
  expect_refused(llama("qwen3_moe", sparse + R"(, "mlp_only_layers": [1])"), "mlp_only_layers");
}

TEST(HuggingFaceConfig, DeepSeekHasLatentAttentionAndSharedExperts) {
  const auto config = [](const std::string& shared) {
    return llama("deepseek_v3",
                 R"(, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, )"
                 R"("n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, )"
                 R"("first_k_dense_replace": 1, "n_shared_experts": )" +
                     shared);
  };
  const TransformerSpec spec = read(config("3"));
  EXPECT_EQ(spec.head_dim, 8 + 4);
  EXPECT_EQ(spec.value_dim, 8);
  EXPECT_EQ(spec.query_rank, 0);
  EXPECT_EQ(spec.shared_ffn, 3 * 32);
  EXPECT_EQ(spec.first_dense, 1);
  EXPECT_EQ(read(config("900000000000000000")).shared_ffn, std::numeric_limits<std::int64_t>::max());
}

TEST(HuggingFaceConfig, BertsArchitectureIsItsTask) {
  EXPECT_EQ(read(R"({"model_type": "bert"})").head, Head::kEncoder);
  EXPECT_EQ(read(R"({"model_type": "bert", "architectures": ["BertForMaskedLM"]})").head, Head::kMasked);
  EXPECT_EQ(read(R"({"model_type": "bert", "architectures": ["BertForPreTraining"]})").head, Head::kMasked);
  EXPECT_EQ(read(R"({"model_type": "bert", "architectures": ["BertModel"]})").head, Head::kEncoder);
  EXPECT_EQ(read(R"({"model_type": "bert"})").token_types, 2);
  EXPECT_EQ(read(R"({"model_type": "bert", "hidden_dropout_prob": 0.25})").residual_dropout, 0.25);
}

TEST(HuggingFaceConfig, T5HasTwoHalves) {
  const TransformerSpec spec = read(R"({"model_type": "t5", "num_layers": 3})");
  EXPECT_TRUE(spec.encoder_decoder);
  EXPECT_EQ(spec.encoder_layers, 3);
  EXPECT_EQ(spec.layers, 3);
  EXPECT_EQ(spec.activation, Activation::kRelu);
  EXPECT_FALSE(spec.gated);
  const TransformerSpec gated =
      read(R"({"model_type": "mt5", "num_decoder_layers": 2, "feed_forward_proj": "gated-gelu"})");
  EXPECT_EQ(gated.layers, 2);
  EXPECT_TRUE(gated.gated);
  EXPECT_EQ(gated.activation, Activation::kGeluNew);  // as configuration_t5.py has it
}

TEST(HuggingFaceConfig, WholeNumbersMayHaveAPoint) {
  EXPECT_EQ(read(R"({"model_type": "gpt2", "n_layer": 24.0})").layers, 24);
  expect_refused(R"({"model_type": "gpt2", "n_layer": 24.5})", "n_layer must be an integer");
}

TEST(HuggingFaceConfig, NullIsTheDefault) {
  EXPECT_EQ(read(R"({"model_type": "gpt2", "n_inner": null, "n_embd": 96})").ffn, 4 * 96);
}

TEST(HuggingFaceConfig, WrongTypesAreNamed) {
  expect_refused(R"({"model_type": "gpt2", "tie_word_embeddings": "yes"})",
                 "tie_word_embeddings must be true or false");
  expect_refused(R"({"model_type": "gpt2", "attn_pdrop": "0.1"})", "attn_pdrop must be a number");
  expect_refused(R"({"model_type": "gpt2", "activation_function": 3})",
                 "activation_function must be a string");
}

TEST(HuggingFaceConfig, AnUnknownFamilyIsToldTheKnownOnes) {
  expect_refused(R"({"model_type": "xlnet"})", "\"xlnet\" is not known; known are llama, mistral");
  expect_refused(R"({"model_type": "xlnet"})", "python3 -m plimsoll.export MODULE:FUNCTION");
}

TEST(HuggingFaceConfig, APartOfAModelMayBeKnown) {
  const std::string config =
      R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}, "vision_config": {}})";
  expect_refused(config, "It has a text_config: give that object alone");
}

TEST(HuggingFaceConfig, SizesAreNotCheckedHere) {
  EXPECT_EQ(read(R"({"model_type": "gpt2", "n_head": 0, "n_layer": -1})").layers, -1);
}

TEST(HuggingFaceConfig, TheClassSaysWhatIsTrained) {
  EXPECT_EQ(read(llama("llama", R"(, "architectures": ["LlamaForCausalLM"])")).head, Head::kCausal);
  const TransformerSpec scored = read(llama(
      "qwen2",
      R"(, "architectures": ["Qwen2ForSequenceClassification"], "id2label": {"0": "a", "1": "b", "2": "c"})"));
  EXPECT_EQ(scored.head, Head::kScore);
  EXPECT_EQ(scored.classes, 3);
  EXPECT_TRUE(scored.causal());
  const TransformerSpec bert =
      read(R"({"model_type": "bert", "architectures": ["BertForSequenceClassification"]})");
  EXPECT_EQ(bert.head, Head::kEncoder);
  EXPECT_EQ(bert.classes, 2) << "transformers' default";
  EXPECT_EQ(read(R"({"model_type": "bert", "architectures": ["BertModel"]})").classes, 0);
  EXPECT_EQ(read(R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]})").head, Head::kCausal);
}

// The head of another task was estimated as that of the next token, over the whole vocabulary.
TEST(HuggingFaceConfig, AHeadThatIsNotKnownIsRefusedByName) {
  for (const char* name :
       {"LlamaForQuestionAnswering", "LlamaForTokenClassification", "LlamaModel", "SomethingElse"}) {
    expect_refused(llama("llama", std::string(R"(, "architectures": [")") + name + R"("])"), name);
  }
  expect_refused(R"({"model_type": "bert", "architectures": ["BertLMHeadModel"]})", "plimsoll.export");
  expect_refused(R"({"model_type": "t5", "architectures": ["T5ForTokenClassification"]})",
                 "T5ForTokenClassification");
}

TEST(HuggingFaceConfig, KeysThatChangeMemoryAndAreNotModelledAreRefusedByName) {
  expect_refused(
      llama("llama", R"(, "quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": true})"),
      "quantization_config says that the weights are quantised");
  expect_refused(llama("llama", R"(, "output_hidden_states": true)"), "output_hidden_states");
  expect_refused(llama("llama", R"(, "pruned_heads": {"1": [0]})"), "pruned_heads");
  expect_refused(R"({"model_type": "gpt2", "reorder_and_upcast_attn": true})", "reorder_and_upcast_attn");
  expect_refused(R"({"model_type": "bert", "is_decoder": true})", "is_decoder");
  // With the values that every config has, they say nothing.
  read(llama("llama", R"(, "quantization_config": null, "output_hidden_states": false, "pruned_heads": {},
                          "chunk_size_feed_forward": 0, "add_cross_attention": false, "is_decoder": false)"));
}

TEST(HuggingFaceConfig, AMisspeltKeyIsRefusedAndAnUnknownOnePasses) {
  expect_refused(llama("llama", R"(, "num_key_value_head": 2)"),
                 "num_key_value_head is not known; did you mean num_key_value_heads?");
  expect_refused(R"({"model_type": "gpt2", "n_layers": 24})", "did you mean n_layer?");
  EXPECT_EQ(read(llama("llama", R"(, "num_key_value_head": 2, "num_key_value_heads": 4)")).kv_heads, 4)
      << "the right one is there, too";
  read(llama("llama",
             R"(, "rope_theta": 500000, "transformers_version": "5.24.0", "anything_else": {"a": [1]})"));
  read(R"({"model_type": "gemma3_text", "_sliding_window_pattern": 6})");
}

// Comparing thousands of keys took seconds of a decision.
TEST(HuggingFaceConfig, MoreKeysThanAnyConfigHasAreRefused) {
  std::string more;
  for (int i = 0; i < 600; ++i) {
    more += ", \"key_" + std::to_string(i) + "\": 1";
  }
  expect_refused(llama("llama", more), "more than 512 keys");
}

TEST(HuggingFaceConfig, AbsurdWindowsAndLabelsAreErrors) {
  expect_refused(llama("mistral", R"(, "sliding_window": 1e300)"), "sliding_window must be an integer");
  expect_refused(llama("llama", R"(, "architectures": ["LlamaForSequenceClassification"], "num_labels": 0)"),
                 "num_labels must be at least 1");
  expect_refused(
      R"({"model_type": "bert", "architectures": ["BertForSequenceClassification"], "num_labels": -5})",
      "num_labels must be at least 1");
}

// Windows of Mistral and Qwen were ignored: SDPA then has a mask, and grouped keys and values are repeated.
TEST(HuggingFaceConfig, MistralAndQwenHaveWindows) {
  EXPECT_EQ(read(llama("mistral")).window, 4096) << "MistralConfig's default";
  EXPECT_TRUE(read(llama("mistral")).all_slide);
  EXPECT_FALSE(read(llama("mistral", R"(, "sliding_window": null)")).all_slide);
  EXPECT_FALSE(read(llama("mixtral")).all_slide);
  EXPECT_EQ(read(llama("mixtral", R"(, "sliding_window": 64)")).window, 64);
  EXPECT_TRUE(read(llama("qwen2", R"(, "sliding_window": 64)")).sliding.empty())
      << "use_sliding_window is false";
  const TransformerSpec late =
      read(llama("qwen2", R"(, "use_sliding_window": true, "sliding_window": 64, "max_window_layers": 1)"));
  EXPECT_EQ(late.window, 64);
  EXPECT_EQ(late.sliding, (std::vector<bool>{false, true}));
  const TransformerSpec listed = read(llama(
      "qwen3",
      R"(, "use_sliding_window": true, "sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"])"));
  EXPECT_EQ(listed.sliding, (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace plimsoll::estimator
