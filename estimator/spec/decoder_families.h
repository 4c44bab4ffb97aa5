// The decoders among Hugging Face's families: members and defaults of configuration_<family>.py, and what differs in
// modeling_<family>.py, as fields of a TransformerSpec. Pure; any thread.
#pragma once

#include "estimator/spec/config_keys.h"
#include "estimator/spec/transformer_spec.h"

namespace plimsoll::estimator::inline spec {

TransformerSpec llama_spec(ConfigKeys& keys);
TransformerSpec mistral_spec(ConfigKeys& keys);
TransformerSpec mixtral_spec(ConfigKeys& keys);
TransformerSpec qwen2_spec(ConfigKeys& keys);
TransformerSpec qwen2_moe_spec(ConfigKeys& keys);
TransformerSpec qwen3_spec(ConfigKeys& keys);
TransformerSpec qwen3_moe_spec(ConfigKeys& keys);
TransformerSpec deepseek_spec(ConfigKeys& keys);
TransformerSpec gpt2_spec(ConfigKeys& keys);
TransformerSpec gemma_spec(ConfigKeys& keys);
TransformerSpec gemma2_spec(ConfigKeys& keys);
TransformerSpec gemma3_spec(ConfigKeys& keys);
TransformerSpec phi_spec(ConfigKeys& keys);
TransformerSpec phi3_spec(ConfigKeys& keys);
TransformerSpec gpt_neox_spec(ConfigKeys& keys);
TransformerSpec stablelm_spec(ConfigKeys& keys);
TransformerSpec olmo2_spec(ConfigKeys& keys);
TransformerSpec opt_spec(ConfigKeys& keys);
TransformerSpec falcon_spec(ConfigKeys& keys);
TransformerSpec bloom_spec(ConfigKeys& keys);
TransformerSpec mamba_spec(ConfigKeys& keys);
TransformerSpec llama4_spec(ConfigKeys& keys);
TransformerSpec qwen3_next_spec(ConfigKeys& keys);

// Sets the spec's activation by the name that transformers has for it (activations.py); fails for another.
void set_activation(ConfigKeys& keys, const std::string& name, TransformerSpec& spec);

}  // namespace plimsoll::estimator::spec
