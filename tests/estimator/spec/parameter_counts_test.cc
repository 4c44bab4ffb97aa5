// Parameters of published models, from their config.json: the count of the lowered graph equals exactly
// that of the model cards and of PyTorch's sum over parameters().
#include <gtest/gtest.h>

#include <string>

#include "estimator/spec/transformer.h"

namespace plimsoll::estimator {
namespace {

struct Published {
  const char* name;
  const char* config;
  std::int64_t parameters;
};

// The keys of the models' config.json on the Hugging Face hub that determine sizes.
const Published kPublished[] = {
    {"Llama-3-8B",
     R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_act":"silu","hidden_size":4096,
         "intermediate_size":14336,"max_position_embeddings":8192,"num_attention_heads":32,"num_hidden_layers":32,
         "num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":500000.0,
         "tie_word_embeddings":false,"torch_dtype":"bfloat16","vocab_size":128256})",
     8'030'261'248},
    {"Llama-3-70B",
     R"({"model_type":"llama","hidden_act":"silu","hidden_size":8192,"intermediate_size":28672,
         "num_attention_heads":64,"num_hidden_layers":80,"num_key_value_heads":8,"vocab_size":128256})",
     70'553'706'496},
    {"Llama-3.1-405B",
     R"({"model_type":"llama","hidden_act":"silu","hidden_size":16384,"intermediate_size":53248,
         "num_attention_heads":128,"num_hidden_layers":126,"num_key_value_heads":8,"vocab_size":128256})",
     405'853'388'800},
    {"Llama-3.2-1B",
     R"({"model_type":"llama","hidden_size":2048,"intermediate_size":8192,"num_attention_heads":32,"head_dim":64,
         "num_hidden_layers":16,"num_key_value_heads":8,"tie_word_embeddings":true,"vocab_size":128256})",
     1'235'814'400},
    {"Llama-2-7B",
     R"({"model_type":"llama","hidden_size":4096,"intermediate_size":11008,"num_attention_heads":32,
         "num_hidden_layers":32,"vocab_size":32000})",
     6'738'415'616},
    {"Mistral-7B-v0.1",
     R"({"model_type":"mistral","hidden_size":4096,"intermediate_size":14336,"num_attention_heads":32,
         "num_hidden_layers":32,"num_key_value_heads":8,"sliding_window":4096,"vocab_size":32000})",
     7'241'732'096},
    {"Mixtral-8x7B-v0.1",
     R"({"model_type":"mixtral","hidden_size":4096,"intermediate_size":14336,"num_attention_heads":32,
         "num_experts_per_tok":2,"num_hidden_layers":32,"num_key_value_heads":8,"num_local_experts":8,
         "vocab_size":32000})",
     46'702'792'704},
    {"Qwen2-7B",
     R"({"model_type":"qwen2","hidden_act":"silu","hidden_size":3584,"intermediate_size":18944,
         "num_attention_heads":28,"num_hidden_layers":28,"num_key_value_heads":4,"vocab_size":152064})",
     7'615'616'512},
    {"Qwen2-0.5B",
     R"({"model_type":"qwen2","hidden_size":896,"intermediate_size":4864,"num_attention_heads":14,
         "num_hidden_layers":24,"num_key_value_heads":2,"tie_word_embeddings":true,"vocab_size":151936})",
     494'032'768},
    {"Qwen3-8B",
     R"({"model_type":"qwen3","head_dim":128,"hidden_size":4096,"intermediate_size":12288,
         "num_attention_heads":32,"num_hidden_layers":36,"num_key_value_heads":8,"vocab_size":151936})",
     8'190'735'360},
    {"Qwen3-30B-A3B",
     R"({"model_type":"qwen3_moe","head_dim":128,"hidden_size":2048,"intermediate_size":6144,
         "moe_intermediate_size":768,"mlp_only_layers":[],"num_attention_heads":32,"num_experts":128,
         "num_experts_per_tok":8,"num_hidden_layers":48,"num_key_value_heads":4,"vocab_size":151936})",
     30'532'122'624},
    {"GPT-2",
     R"({"model_type":"gpt2","activation_function":"gelu_new","n_embd":768,"n_head":12,"n_layer":12,
         "n_positions":1024,"vocab_size":50257})",
     124'439'808},
    {"GPT-2 XL",
     R"({"model_type":"gpt2","n_embd":1600,"n_head":25,"n_layer":48,"n_positions":1024,"vocab_size":50257})",
     1'557'611'200},
    {"BERT-base",
     R"({"model_type":"bert","architectures":["BertModel"],"hidden_size":768,"intermediate_size":3072,
         "max_position_embeddings":512,"num_attention_heads":12,"num_hidden_layers":12,"type_vocab_size":2,
         "vocab_size":30522})",
     109'482'240},
    {"BERT-base with its masked language head",
     R"({"model_type":"bert","architectures":["BertForMaskedLM"],"hidden_size":768,"intermediate_size":3072,
         "max_position_embeddings":512,"num_attention_heads":12,"num_hidden_layers":12,"type_vocab_size":2,
         "vocab_size":30522})",
     109'514'298},
    {"T5-base",
     R"({"model_type":"t5","d_ff":3072,"d_kv":64,"d_model":768,"num_heads":12,"num_layers":12,
         "relative_attention_num_buckets":32,"vocab_size":32128})",
     222'903'552},
    {"T5-small", R"({"model_type":"t5","d_ff":2048,"d_kv":64,"d_model":512,"num_heads":8,"num_layers":6,
                     "vocab_size":32128})",
     60'506'624},
    {"DeepSeek-V2-Lite",
     R"({"model_type":"deepseek_v2","first_k_dense_replace":1,"hidden_size":2048,"intermediate_size":10944,
         "kv_lora_rank":512,"moe_intermediate_size":1408,"moe_layer_freq":1,"n_routed_experts":64,
         "n_shared_experts":2,"num_attention_heads":16,"num_experts_per_tok":6,"num_hidden_layers":27,
         "num_key_value_heads":16,"q_lora_rank":null,"qk_nope_head_dim":128,"qk_rope_head_dim":64,
         "v_head_dim":128,"vocab_size":102400})",
     15'706'484'224},
    {"DeepSeek-V3 without its multi-token prediction",
     R"({"model_type":"deepseek_v3","first_k_dense_replace":3,"hidden_size":7168,"intermediate_size":18432,
         "kv_lora_rank":512,"moe_intermediate_size":2048,"n_routed_experts":256,"n_shared_experts":1,
         "num_attention_heads":128,"num_experts_per_tok":8,"num_hidden_layers":61,"num_key_value_heads":128,
         "q_lora_rank":1536,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,"vocab_size":129280})",
     671'026'404'352},
};

TEST(ParameterCounts, AreThePublishedOnes) {
  for (const Published& model : kPublished) {
    const Result<TransformerSpec> spec = spec_of_config(model.config, 512, crds::AttentionKind::kSDPA);
    ASSERT_TRUE(spec.ok()) << model.name << ": " << to_string(spec.error());
    const crds::TrainingSpec training{.batch_size_per_trainer = 1};
    const Result<ForwardGraph> graph = lower_transformer(*spec, training, {});
    ASSERT_TRUE(graph.ok()) << model.name << ": " << to_string(graph.error());
    EXPECT_EQ(graph->parameter_count(), model.parameters) << model.name;
  }
}

}  // namespace
}  // namespace plimsoll::estimator
