// Reads a Hugging Face config.json into a TransformerSpec: the keys and defaults of
// transformers/models/<family>/configuration_<family>.py. Sizes are not checked here but in
// transformer_spec.cc. Pure; any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "estimator/spec/transformer_spec.h"

namespace plimsoll::estimator::inline spec {

// The names of the sizes in their source, for error messages.
struct SizeNames {
  const char *layers, *hidden, *vocab, *heads, *kv_heads, *head_dim, *ffn, *experts, *experts_per_token,
      *expert_ffn;
};
inline constexpr SizeNames kApiNames = {"layers",  "hidden", "vocab",   "heads",           "kvHeads",
                                        "headDim", "ffn",    "experts", "expertsPerToken", "ffn"};
inline constexpr SizeNames kConfigNames = {
    "num_hidden_layers", "hidden_size",       "vocab_size", "num_attention_heads", "num_key_value_heads",
    "head_dim",          "intermediate_size", "experts",    "num_experts_per_tok", "moe_intermediate_size"};

// Errors: kInvalid: not a JSON object, a key of the wrong type, an unknown model_type or activation (the
// message lists the known ones).
Result<TransformerSpec> read_hugging_face_config(const std::string& config);

}  // namespace plimsoll::estimator::spec
