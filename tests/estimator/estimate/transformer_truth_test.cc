// The lowered specs on the CPU against Hugging Face's transformers on real PyTorch, as
// tests/accuracy/transformer_truth.py measures them (torch 2.15, transformers 5.23, one thread).
#include <gtest/gtest.h>

#include <cmath>

#include "estimator/estimate/estimate.h"

namespace plimsoll::estimator {
namespace {

using crds::AttentionKind;
using crds::Optimizer;

struct Truth {
  const char* config;
  AttentionKind attention;
  std::int64_t batch;
  std::int64_t tokens;
  Optimizer optimizer;
  bool checkpointing;
  bool mixed;
  std::int64_t bytes;
};

const Truth kTruth[] = {
    {R"({"model_type": "llama", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4, "num_hidden_layers": 3, "num_key_value_heads": 2, "vocab_size": 500})",
     AttentionKind::kEager, 2, 64, Optimizer::kSGD, false, false, 8236192},
    {R"({"model_type": "llama", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4, "num_hidden_layers": 3, "num_key_value_heads": 2, "vocab_size": 500})",
     AttentionKind::kEager, 4, 128, Optimizer::kSGD, false, false, 26302112},
    {R"({"model_type": "llama", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4, "num_hidden_layers": 3, "num_key_value_heads": 2, "vocab_size": 500})",
     AttentionKind::kSDPA, 2, 64, Optimizer::kAdamW, false, false, 13107456},
    {R"({"model_type": "llama", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4, "num_hidden_layers": 3, "num_key_value_heads": 2, "vocab_size": 500})",
     AttentionKind::kSDPA, 4, 128, Optimizer::kSGD, false, false, 22394504},
    {R"({"model_type": "llama", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4, "num_hidden_layers": 3, "num_key_value_heads": 2, "vocab_size": 500})",
     AttentionKind::kSDPA, 8, 128, Optimizer::kSGD, true, false, 18614344},
    {R"({"model_type": "llama", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4, "num_hidden_layers": 3, "num_key_value_heads": 2, "vocab_size": 500})",
     AttentionKind::kEager, 8, 128, Optimizer::kSGD, true, false, 21743696},
    {R"({"model_type": "llama", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4, "num_hidden_layers": 3, "num_key_value_heads": 2, "vocab_size": 500})",
     AttentionKind::kSDPA, 4, 128, Optimizer::kSGD, false, true, 18385544},
    {R"({"model_type": "qwen2", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4, "num_hidden_layers": 3, "num_key_value_heads": 2, "vocab_size": 500, "tie_word_embeddings": true})",
     AttentionKind::kSDPA, 4, 128, Optimizer::kMomentum, false, false, 24616072},
    {R"({"model_type": "qwen3", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4, "num_hidden_layers": 3, "num_key_value_heads": 2, "vocab_size": 500, "head_dim": 48})",
     AttentionKind::kSDPA, 4, 128, Optimizer::kSGD, false, false, 27462472},
    {R"({"model_type": "gpt2", "n_embd": 128, "n_head": 4, "n_layer": 3, "n_positions": 128, "vocab_size": 500, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0})",
     AttentionKind::kEager, 4, 128, Optimizer::kSGD, false, false, 31501928},
    {R"({"model_type": "gpt2", "n_embd": 128, "n_head": 4, "n_layer": 3, "n_positions": 128, "vocab_size": 500, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0})",
     AttentionKind::kSDPA, 4, 128, Optimizer::kAdamW, false, false, 33784560},
    {R"({"model_type": "gpt2", "n_embd": 128, "n_head": 4, "n_layer": 3, "n_positions": 128, "vocab_size": 500, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0})",
     AttentionKind::kSDPA, 8, 128, Optimizer::kSGD, true, false, 24261600},
    {R"({"model_type": "gpt2", "n_embd": 128, "n_head": 4, "n_layer": 3, "n_positions": 128, "vocab_size": 500, "embd_pdrop": 0.1, "resid_pdrop": 0.1, "attn_pdrop": 0.1})",
     AttentionKind::kEager, 4, 128, Optimizer::kSGD, false, false, 39628392},
    {R"({"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 4, "num_hidden_layers": 3, "max_position_embeddings": 128, "vocab_size": 500, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})",
     AttentionKind::kEager, 4, 128, Optimizer::kSGD, false, false, 22927344},
    {R"({"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 4, "num_hidden_layers": 3, "max_position_embeddings": 128, "vocab_size": 500, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})",
     AttentionKind::kSDPA, 4, 128, Optimizer::kSGD, false, false, 19806168},
    {R"({"model_type": "t5", "d_model": 128, "d_ff": 512, "d_kv": 32, "num_heads": 4, "num_layers": 3, "vocab_size": 500, "dropout_rate": 0.0, "decoder_start_token_id": 0})",
     AttentionKind::kEager, 4, 128, Optimizer::kSGD, false, false, 47687256},
    {R"({"model_type": "mixtral", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4, "num_hidden_layers": 3, "num_key_value_heads": 2, "vocab_size": 500, "num_local_experts": 4, "num_experts_per_tok": 2})",
     AttentionKind::kSDPA, 4, 128, Optimizer::kSGD, false, false, 39216824},
    {R"({"model_type": "deepseek_v2", "hidden_size": 128, "intermediate_size": 352, "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 3, "vocab_size": 500, "kv_lora_rank": 64, "q_lora_rank": 96, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 96, "first_k_dense_replace": 1, "topk_method": "greedy", "n_group": 1, "topk_group": 1})",
     AttentionKind::kEager, 4, 128, Optimizer::kSGD, false, false, 31956496},
};

double error_of(const Truth& truth) {
  crds::ModelSpec model;
  model.transformer.emplace();
  model.transformer->config = truth.config;
  model.transformer->sequence_length = truth.tokens;
  model.transformer->attention = truth.attention;
  crds::TrainingSpec training;
  training.batch_size_per_trainer = truth.batch;
  training.optimizer = truth.optimizer;
  training.precision = truth.mixed ? crds::Precision::kBF16Mixed : crds::Precision::kFP32;
  training.activation_checkpointing =
      truth.checkpointing ? crds::ActivationCheckpointing::kFull : crds::ActivationCheckpointing::kNone;
  const Result<Estimate> estimate =
      estimate_memory({.model = &model, .training = &training, .device = Device::kCpu});
  EXPECT_TRUE(estimate.ok()) << to_string(estimate.error());
  if (!estimate) {
    return 100;
  }
  const std::int64_t bytes = estimate->peak.allocated.count;
  const double error = 100.0 * static_cast<double>(bytes - truth.bytes) / static_cast<double>(truth.bytes);
  std::printf("%.34s... %s batch %ld x %ld%s%s  measured %9ld  estimated %9ld  error %+6.2f%%  peak in %s\n",
              truth.config, crds::name_of(truth.optimizer), static_cast<long>(truth.batch),
              static_cast<long>(truth.tokens), truth.checkpointing ? " checkpointed" : "",
              truth.mixed ? " mixed" : "", static_cast<long>(truth.bytes), static_cast<long>(bytes), error,
              estimate->peak_phase.c_str());
  return error;
}

TEST(TransformerTruth, TheEstimateOnTheCpuMeetsHuggingFaceOnRealPyTorch) {
  for (const Truth& truth : kTruth) {
    EXPECT_LT(std::abs(error_of(truth)), 0.25) << truth.config;
  }
}

}  // namespace
}  // namespace plimsoll::estimator
