#include "estimator/spec/module_names.h"

#include <algorithm>
#include <array>
#include <utility>

namespace plimsoll::estimator::inline spec {
namespace {

constexpr bool kLinear = true;

// Gated networks multiply activation(`up`) by `gate` here, which transformers calls gate_proj and up_proj.
constexpr std::array kLlamaLayer = {
    ModuleName{"attention.q", "self_attn.q_proj", kLinear},
    ModuleName{"attention.k", "self_attn.k_proj", kLinear},
    ModuleName{"attention.v", "self_attn.v_proj", kLinear},
    ModuleName{"attention.out", "self_attn.o_proj", kLinear},
    ModuleName{"attention.q_norm", "self_attn.q_norm"},
    ModuleName{"attention.k_norm", "self_attn.k_norm"},
    ModuleName{"mlp.up", "mlp.gate_proj", kLinear},
    ModuleName{"mlp.gate", "mlp.up_proj", kLinear},
    ModuleName{"mlp.down", "mlp.down_proj", kLinear},
    ModuleName{"mlp.router", "mlp.gate"},  // a module of its own kind since transformers 5
    ModuleName{"mlp.experts", "mlp.experts"},
    ModuleName{"mlp.shared.up", "mlp.shared_expert.gate_proj", kLinear},
    ModuleName{"mlp.shared.gate", "mlp.shared_expert.up_proj", kLinear},
    ModuleName{"mlp.shared.down", "mlp.shared_expert.down_proj", kLinear},
    ModuleName{"mlp.shared_gate", "mlp.shared_expert_gate", kLinear},
    ModuleName{"attention_norm", "input_layernorm"},
    ModuleName{"mlp_norm", "post_attention_layernorm"},
};
constexpr std::array kLlamaModel = {
    ModuleName{"embed_tokens", "model.embed_tokens"},
    ModuleName{"norm", "model.norm"},
    ModuleName{"head", "lm_head", kLinear},
};
constexpr std::array kGemma2Layer = {
    ModuleName{"attention.q", "self_attn.q_proj", kLinear},
    ModuleName{"attention.k", "self_attn.k_proj", kLinear},
    ModuleName{"attention.v", "self_attn.v_proj", kLinear},
    ModuleName{"attention.out", "self_attn.o_proj", kLinear},
    ModuleName{"attention.q_norm", "self_attn.q_norm"},
    ModuleName{"attention.k_norm", "self_attn.k_norm"},
    ModuleName{"mlp.up", "mlp.gate_proj", kLinear},
    ModuleName{"mlp.gate", "mlp.up_proj", kLinear},
    ModuleName{"mlp.down", "mlp.down_proj", kLinear},
    ModuleName{"attention_norm", "input_layernorm"},
    ModuleName{"attention_post_norm", "post_attention_layernorm"},
    ModuleName{"mlp_norm", "pre_feedforward_layernorm"},
    ModuleName{"mlp_post_norm", "post_feedforward_layernorm"},
};
constexpr std::array kOlmo2Layer = {
    ModuleName{"attention.q", "self_attn.q_proj", kLinear},
    ModuleName{"attention.k", "self_attn.k_proj", kLinear},
    ModuleName{"attention.v", "self_attn.v_proj", kLinear},
    ModuleName{"attention.out", "self_attn.o_proj", kLinear},
    ModuleName{"attention.q_norm", "self_attn.q_norm"},
    ModuleName{"attention.k_norm", "self_attn.k_norm"},
    ModuleName{"mlp.up", "mlp.gate_proj", kLinear},
    ModuleName{"mlp.gate", "mlp.up_proj", kLinear},
    ModuleName{"mlp.down", "mlp.down_proj", kLinear},
    ModuleName{"attention_post_norm", "post_attention_layernorm"},
    ModuleName{"mlp_post_norm", "post_feedforward_layernorm"},
};
constexpr std::array kPhiLayer = {
    ModuleName{"attention.q", "self_attn.q_proj", kLinear},
    ModuleName{"attention.k", "self_attn.k_proj", kLinear},
    ModuleName{"attention.v", "self_attn.v_proj", kLinear},
    ModuleName{"attention.out", "self_attn.dense", kLinear},
    ModuleName{"attention.q_norm", "self_attn.q_layernorm"},
    ModuleName{"attention.k_norm", "self_attn.k_layernorm"},
    ModuleName{"mlp.up", "mlp.fc1", kLinear},
    ModuleName{"mlp.down", "mlp.fc2", kLinear},
    ModuleName{"attention_norm", "input_layernorm"},
};
constexpr std::array kPhiModel = {
    ModuleName{"embed_tokens", "model.embed_tokens"},
    ModuleName{"norm", "model.final_layernorm"},
    ModuleName{"head", "lm_head", kLinear},
};
constexpr std::array kPhi3Layer = {
    ModuleName{"attention.qkv", "self_attn.qkv_proj", kLinear},
    ModuleName{"attention.out", "self_attn.o_proj", kLinear},
    ModuleName{"mlp.gate_up", "mlp.gate_up_proj", kLinear},
    ModuleName{"mlp.down", "mlp.down_proj", kLinear},
    ModuleName{"attention_norm", "input_layernorm"},
    ModuleName{"mlp_norm", "post_attention_layernorm"},
};
constexpr std::array kGpt2Layer = {
    ModuleName{"attention.qkv", "attn.c_attn", kLinear},
    ModuleName{"attention.out", "attn.c_proj", kLinear},
    ModuleName{"mlp.up", "mlp.c_fc", kLinear},
    ModuleName{"mlp.down", "mlp.c_proj", kLinear},
    ModuleName{"attention_norm", "ln_1"},
    ModuleName{"mlp_norm", "ln_2"},
};
constexpr std::array kGpt2Model = {
    ModuleName{"embed_tokens", "transformer.wte"},
    ModuleName{"positions", "transformer.wpe"},
    ModuleName{"norm", "transformer.ln_f"},
    ModuleName{"head", "lm_head", kLinear},
};
constexpr std::array kBertLayer = {
    ModuleName{"attention.q", "attention.self.query", kLinear},
    ModuleName{"attention.k", "attention.self.key", kLinear},
    ModuleName{"attention.v", "attention.self.value", kLinear},
    ModuleName{"attention.out", "attention.output.dense", kLinear},
    ModuleName{"attention_norm", "attention.output.LayerNorm"},
    ModuleName{"mlp.up", "intermediate.dense", kLinear},
    ModuleName{"mlp.down", "output.dense", kLinear},
    ModuleName{"mlp_norm", "output.LayerNorm"},
};
constexpr std::array kBertModel = {
    ModuleName{"embed_tokens", "bert.embeddings.word_embeddings"},
    ModuleName{"positions", "bert.embeddings.position_embeddings"},
    ModuleName{"token_types", "bert.embeddings.token_type_embeddings"},
    ModuleName{"embeddings.norm", "bert.embeddings.LayerNorm"},
    ModuleName{"pooler", "bert.pooler.dense", kLinear},
    ModuleName{"head.dense", "cls.predictions.transform.dense", kLinear},
    ModuleName{"head.norm", "cls.predictions.transform.LayerNorm"},
    ModuleName{"head", "cls.predictions.decoder", kLinear},
};
constexpr std::array kRobertaModel = {
    ModuleName{"embed_tokens", "roberta.embeddings.word_embeddings"},
    ModuleName{"positions", "roberta.embeddings.position_embeddings"},
    ModuleName{"token_types", "roberta.embeddings.token_type_embeddings"},
    ModuleName{"embeddings.norm", "roberta.embeddings.LayerNorm"},
    ModuleName{"pooler", "roberta.pooler.dense", kLinear},
    ModuleName{"head.dense", "lm_head.dense", kLinear},
    ModuleName{"head.norm", "lm_head.layer_norm"},
    ModuleName{"head", "lm_head.decoder", kLinear},
};
constexpr std::array kNeoxLayer = {
    ModuleName{"attention.qkv", "attention.query_key_value", kLinear},
    ModuleName{"attention.out", "attention.dense", kLinear},
    ModuleName{"mlp.up", "mlp.dense_h_to_4h", kLinear},
    ModuleName{"mlp.down", "mlp.dense_4h_to_h", kLinear},
    ModuleName{"attention_norm", "input_layernorm"},
    ModuleName{"mlp_norm", "post_attention_layernorm"},
};
constexpr std::array kNeoxModel = {
    ModuleName{"embed_tokens", "gpt_neox.embed_in"},
    ModuleName{"norm", "gpt_neox.final_layer_norm"},
    ModuleName{"head", "embed_out", kLinear},
};
constexpr std::array kFalconLayer = {
    ModuleName{"attention.qkv", "self_attention.query_key_value", kLinear},
    ModuleName{"attention.out", "self_attention.dense", kLinear},
    ModuleName{"mlp.up", "mlp.dense_h_to_4h", kLinear},
    ModuleName{"mlp.down", "mlp.dense_4h_to_h", kLinear},
    ModuleName{"attention_norm", "input_layernorm"},
    ModuleName{"mlp_norm", "post_attention_layernorm"},
};
constexpr std::array kFalconModel = {
    ModuleName{"embed_tokens", "transformer.word_embeddings"},
    ModuleName{"embeddings.norm", "transformer.word_embeddings_layernorm"},
    ModuleName{"norm", "transformer.ln_f"},
    ModuleName{"head", "lm_head", kLinear},
};
constexpr std::array kOptLayer = {
    ModuleName{"attention.q", "self_attn.q_proj", kLinear},
    ModuleName{"attention.k", "self_attn.k_proj", kLinear},
    ModuleName{"attention.v", "self_attn.v_proj", kLinear},
    ModuleName{"attention.out", "self_attn.out_proj", kLinear},
    ModuleName{"attention_norm", "self_attn_layer_norm"},
    ModuleName{"mlp.up", "fc1", kLinear},
    ModuleName{"mlp.down", "fc2", kLinear},
    ModuleName{"mlp_norm", "final_layer_norm"},
};
constexpr std::array kOptModel = {
    ModuleName{"embed_tokens", "model.decoder.embed_tokens"},
    ModuleName{"positions", "model.decoder.embed_positions"},
    ModuleName{"embeddings.project", "model.decoder.project_in", kLinear},
    ModuleName{"norm", "model.decoder.final_layer_norm"},
    ModuleName{"head.project", "model.decoder.project_out", kLinear},
    ModuleName{"head", "lm_head", kLinear},
};

// peft's defaults (utils/constants.py: TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING). None: peft has none.
constexpr std::array kQueriesAndValues = {"q_proj", "v_proj"};
constexpr std::array kPhiTargets = {"q_proj", "v_proj", "fc1", "fc2"};
constexpr std::array kBertTargets = {"query", "value"};
constexpr std::array kFusedTargets = {"query_key_value"};
constexpr std::array kGpt2Targets = {"c_attn"};
constexpr std::span<const char* const> kNoTargets;

constexpr std::array kMixtralUp = {"w1", "w3"};
constexpr std::array kQwenUp = {"gate_proj", "up_proj"};
constexpr ExpertTargets kMixtralExperts = {"gate", kMixtralUp, "w2"};
constexpr ExpertTargets kQwenExperts = {"gate", kQwenUp, "down_proj"};

constexpr const char* kOfLlama = "model.layers";
constexpr std::pair<const char*, ModuleNames> kFamilies[] = {
    {"", {kOfLlama, kLlamaLayer, kLlamaModel, kQueriesAndValues}},
    {"bert", {"bert.encoder.layer", kBertLayer, kBertModel, kBertTargets}},
    {"bloom", {"transformer.h", kFalconLayer, kFalconModel, kFusedTargets}},
    {"falcon", {"transformer.h", kFalconLayer, kFalconModel, kFusedTargets}},
    {"gemma", {kOfLlama, kLlamaLayer, kLlamaModel, kQueriesAndValues}},
    {"gemma2", {kOfLlama, kGemma2Layer, kLlamaModel, kQueriesAndValues}},
    {"gemma3_text", {kOfLlama, kGemma2Layer, kLlamaModel, kQueriesAndValues}},
    {"gpt2", {"transformer.h", kGpt2Layer, kGpt2Model, kGpt2Targets}},
    {"gpt_neox", {"gpt_neox.layers", kNeoxLayer, kNeoxModel, kFusedTargets}},
    {"llama", {kOfLlama, kLlamaLayer, kLlamaModel, kQueriesAndValues}},
    {"mistral", {kOfLlama, kLlamaLayer, kLlamaModel, kQueriesAndValues}},
    {"mixtral", {kOfLlama, kLlamaLayer, kLlamaModel, kQueriesAndValues, &kMixtralExperts}},
    {"olmo2", {kOfLlama, kOlmo2Layer, kLlamaModel, kNoTargets}},
    {"opt", {"model.decoder.layers", kOptLayer, kOptModel, kQueriesAndValues}},
    {"phi", {kOfLlama, kPhiLayer, kPhiModel, kPhiTargets}},
    {"phi3", {kOfLlama, kPhi3Layer, kLlamaModel, kNoTargets}},
    {"qwen2", {kOfLlama, kLlamaLayer, kLlamaModel, kQueriesAndValues}},
    {"qwen2_moe", {kOfLlama, kLlamaLayer, kLlamaModel, kNoTargets}},
    {"qwen3", {kOfLlama, kLlamaLayer, kLlamaModel, kQueriesAndValues}},
    {"qwen3_moe", {kOfLlama, kLlamaLayer, kLlamaModel, kNoTargets, &kQwenExperts}},
    {"roberta", {"roberta.encoder.layer", kBertLayer, kRobertaModel, kBertTargets}},
    {"stablelm", {kOfLlama, kLlamaLayer, kLlamaModel, kQueriesAndValues}},
};

constexpr std::string_view kLayers = "layers.";

// The number of the layer and the name in it; the number is empty outside of layers.
std::pair<std::string_view, std::string_view> taken_apart(std::string_view own) {
  if (!own.starts_with(kLayers)) {
    return {{}, own};
  }
  own.remove_prefix(kLayers.size());
  const std::size_t dot = own.find('.');
  return dot == std::string_view::npos ? std::pair{own, std::string_view()}
                                       : std::pair{own.substr(0, dot), own.substr(dot + 1)};
}

const ModuleName* find(const ModuleNames& names, std::string_view number, std::string_view own) {
  const std::span<const ModuleName> of = number.empty() ? names.of_model : names.of_layer;
  const auto found =
      std::find_if(of.begin(), of.end(), [&](const ModuleName& each) { return own == each.own; });
  return found == of.end() ? nullptr : &*found;
}

}  // namespace

const ModuleNames* module_names(std::string_view model_type) {
  for (const auto& [name, names] : kFamilies) {
    if (model_type == name) {
      return &names;
    }
  }
  return nullptr;
}

std::string families_with_module_names() {
  std::string list;
  for (const auto& [name, names] : kFamilies) {
    list += *name == '\0' ? "" : (list.empty() ? "" : ", ") + std::string(name);
  }
  return list;
}

std::string path_of(const ModuleNames& names, std::string_view own) {
  const auto [number, name] = taken_apart(own);
  const ModuleName* found = find(names, number, name);
  if (found == nullptr) {
    return {};
  }
  return number.empty() ? found->path
                        : std::string(names.layers) + "." + std::string(number) + "." + found->path;
}

bool is_linear(const ModuleNames& names, std::string_view own) {
  const auto [number, name] = taken_apart(own);
  const ModuleName* found = find(names, number, name);
  return found != nullptr && found->linear;
}

bool path_matches(std::string_view key, std::string_view path) {
  return path == key ||
         (path.size() > key.size() && path.ends_with(key) && path[path.size() - key.size() - 1] == '.');
}

}  // namespace plimsoll::estimator::spec
