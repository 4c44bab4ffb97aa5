// TransformerSpec: everything that determines which operators a transformer runs, for all families. It is
// read from a TrainingJob's model.transformer or a Hugging Face config.json.
//
//   Result<TransformerSpec> spec = transformer_spec(*job.spec.model.transformer);
//   Result<ForwardGraph> graph = lower_transformer(*spec, job.spec.training, {});
//
// A value type. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "crds/training_job.h"

namespace plimsoll::estimator::inline spec {

enum class Activation {
  kSilu,
  kGelu,     // one kernel, exact or with tanh
  kGeluNew,  // Hugging Face's NewGELUActivation: eight operators
  kRelu,
};

enum class Positions { kRotary, kLearned, kRelative, kNone };

// The training task, which determines the head and the loss.
enum class Head {
  kCausal,   // next token
  kMasked,   // BERT: a dense layer, a norm and an output layer over the vocabulary
  kEncoder,  // only the encoder with its pooler
};

struct TransformerSpec {
  bool encoder_decoder = false;
  Head head = Head::kCausal;
  std::int64_t layers = 0;          // of the decoder, or of a model with one half
  std::int64_t encoder_layers = 0;  // of the encoder of an encoder-decoder
  std::int64_t hidden = 0;
  std::int64_t vocab = 0;
  std::int64_t sequence = 0;  // tokens per sample, in each half

  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  crds::AttentionKind attention = crds::AttentionKind::kSDPA;
  bool qkv_bias = false;
  bool out_bias = false;
  bool fused_qkv = false;  // one matrix for queries, keys and values
  bool qk_norm = false;    // RMSNorm of each head's queries and keys

  // Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434 section 2.1); kv_rank 0: none.
  std::int64_t query_rank = 0;  // 0: queries are not compressed
  std::int64_t kv_rank = 0;
  std::int64_t rope_dim = 0;   // part of each head with rotary positions
  std::int64_t nope_dim = 0;   // part without; head_dim is the sum of both
  std::int64_t value_dim = 0;  // 0: head_dim

  Positions positions = Positions::kRotary;
  std::int64_t max_positions = 0;     // for kLearned
  std::int64_t relative_buckets = 0;  // for kRelative
  std::int64_t token_types = 0;

  crds::Normalization norm = crds::Normalization::kRMSNorm;
  bool post_norm = false;       // after the residual sum, as in BERT
  bool embedding_norm = false;  // as in BERT
  bool norm_bias = true;        // for LayerNorm

  Activation activation = Activation::kSilu;
  bool gated = false;
  bool mlp_bias = false;
  std::int64_t ffn = 0;

  // Mixture of experts; experts 0: dense.
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  bool weights_sum_to_one = true;  // weights of the experts chosen for a token
  std::int64_t expert_ffn = 0;
  std::int64_t shared_ffn = 0;   // of all shared experts together; 0: none
  bool shared_gate = false;      // as in Qwen2-MoE
  std::int64_t first_dense = 0;  // number of dense layers before the sparse ones
  bool tied = false;
  bool head_bias = false;

  double embedding_dropout = 0;
  double residual_dropout = 0;
  double attention_dropout = 0;
};

// Errors: kInvalid naming the field: impossible sizes, head counts that do not divide, an unknown model_type
// or activation, a config.json that is not JSON.
Result<TransformerSpec> transformer_spec(const crds::TransformerModel& model);

// From a config.json only; `sequence` tokens per sample.
Result<TransformerSpec> spec_of_config(const std::string& config, std::int64_t sequence,
                                       crds::AttentionKind attention);

}  // namespace plimsoll::estimator::spec
