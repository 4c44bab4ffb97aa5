#include "estimator/spec/fine_tuning.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline spec {
namespace {

constexpr std::int64_t kDefaultRank = 8;  // peft's LoraConfig.r
constexpr const char* kAllLinear = "all-linear";
constexpr std::string_view kHead = "head";

bool any(const std::vector<std::string>& keys, std::string_view path,
         bool (*rule)(std::string_view, std::string_view)) {
  return std::any_of(keys.begin(), keys.end(), [&](const std::string& key) { return rule(key, path); });
}

// For the path and each module around it.
bool any_around(const std::vector<std::string>& keys, std::string_view path,
                bool (*rule)(std::string_view, std::string_view)) {
  while (!path.empty()) {
    if (any(keys, path, rule)) {
      return true;
    }
    path = path.substr(0, path.rfind('.') == std::string_view::npos ? 0 : path.rfind('.'));
  }
  return false;
}

// How peft finds modules_to_save: "norm" is also the end of "input_layernorm" (utils/other.py: _set_trainable).
bool ends_with(std::string_view key, std::string_view path) {
  return path.ends_with(key);
}

std::string_view module_of(std::string_view parameter) {
  return parameter.substr(0, parameter.rfind('.') == std::string_view::npos ? 0 : parameter.rfind('.'));
}

std::int64_t number_of(std::string_view own) {
  constexpr std::string_view kLayers = "layers.";
  return own.starts_with(kLayers) ? std::atoll(std::string(own.substr(kLayers.size())).c_str()) : -1;
}

bool has_digit(const std::vector<std::string>& keys) {
  return std::any_of(keys.begin(), keys.end(), [](const std::string& key) {
    return key.find_first_of("0123456789") != std::string::npos;
  });
}

Error bad(const std::string& field, const std::string& what) {
  return invalid("training.fineTuning." + field + ": " + what);
}

// A dense layer's module with the name of an expert's, which the conversion takes away from the targets.
bool named_as_expert(const ExpertTargets& experts, std::string_view path) {
  return path_matches(experts.down, path) ||
         std::any_of(experts.up.begin(), experts.up.end(),
                     [&](const char* name) { return path_matches(name, path); });
}

// The last names of the modules, for a message.
std::string names_of(std::span<const ModuleName> modules, bool linear_only) {
  std::string list;
  for (const ModuleName& each : modules) {
    if (each.linear || !linear_only) {
      list += (list.empty() ? "" : ", ") + std::string(each.path);
    }
  }
  return list;
}

}  // namespace

Result<TunedModel> TunedModel::of(const crds::FineTuning& tuning, const std::string& model_type,
                                  std::int64_t layers, Budget* budget) {
  const ModuleNames* names = module_names(model_type);
  if (names == nullptr) {
    return Error(ErrorCode::kUnsupported,
                 "training.fineTuning: the modules of model_type \"" + model_type.substr(0, 64) +
                     "\" are not known; known are those of " + families_with_module_names() +
                     ". For another family, record the model with its adapters: python3 -m "
                     "plimsoll.export MODULE:FUNCTION --batch-size B -o graph.json.gz");
  }
  TunedModel tuned(tuning, *names, budget);
  if (tuned.adapters() && tuning.target_modules.empty() && names->targets.empty()) {
    return bad("targetModules", "must be given: peft has no default for model_type \"" + model_type + "\"");
  }
  if (tuned.all_linear() && !tuning.layers_to_transform.empty()) {
    return bad("layersToTransform", "cannot be combined with targetModules all-linear, in peft neither");
  }
  if (!tuning.layers_to_transform.empty() &&
      std::any_of(tuning.layers_to_transform.begin(), tuning.layers_to_transform.end(),
                  [&](std::int64_t layer) { return layer >= layers; })) {
    return bad("layersToTransform", "the model has " + std::to_string(layers) + " layers");
  }
  if (!tuning.bitsandbytes_version.empty() && tuning.bitsandbytes_version.find('.') == std::string::npos) {
    return bad("bitsandbytesVersion", "is not a version of bitsandbytes, such as 0.42");
  }
  if (tuning.frozen_layers > layers) {
    return bad("frozenLayers", "the model has " + std::to_string(layers) + " layers");
  }
  Result<void> matched = tuned.check_names(layers);
  if (!matched) {
    return matched.error();
  }
  return tuned;
}

// Names are matched in all layers only if a name or a list has numbers.
Result<void> TunedModel::check_names(std::int64_t layers) const {
  std::vector<std::string> own;
  for (const ModuleName& each : names_.of_model) {
    own.emplace_back(each.own);
  }
  for (std::int64_t layer = 0; layer < (by_layer() ? layers : 1); ++layer) {
    for (const ModuleName& each : names_.of_layer) {
      own.push_back("layers." + std::to_string(layer) + "." + each.own);
    }
  }
  if (adapters()) {
    const auto embedding = [&](const std::string& name) {
      return name == "embed_tokens" || name == "positions";
    };
    bool found = false;
    for (const std::string& name : own) {
      const bool targeted = is_target(name, path_for(name));
      if (targeted && embedding(name)) {
        return Error(ErrorCode::kUnsupported,
                     "training.fineTuning.targetModules: adapters of embeddings are not modelled (" +
                         path_for(name) + "); train it as a whole with modulesToSave, or record the model");
      }
      found = found || adapter_of(name).has_value();
    }
    for (const char* of_experts : {"mlp.router", "mlp.experts.gate_up", "mlp.experts.down"}) {
      found = found || expert_adapter(of_experts).has_value();
    }
    Result<void> experts = check_experts();
    if (!experts) {
      return experts;
    }
    if (!found) {
      return bad("targetModules",
                 "no linear layer of the model matches; a layer has " + names_of(names_.of_layer, true));
    }
  }
  const auto check = [&](const char* field, const std::vector<std::string>& keys,
                         bool (*rule)(std::string_view, std::string_view)) -> Result<void> {
    for (const std::string& key : keys) {
      const bool found = std::any_of(own.begin(), own.end(), [&](const std::string& name) {
        return any_around({key}, path_for(name), rule);
      });
      if (!found) {
        return bad(field, "no module of the model matches " + key + "; they are " +
                              names_of(names_.of_model, false) + ", and in a layer " +
                              names_of(names_.of_layer, false));
      }
    }
    return {};
  };
  Result<void> checked = check("modulesToSave", tuning_.modules_to_save, ends_with);
  return checked ? check("frozenModules", tuning_.frozen_modules, path_matches) : checked;
}

std::string TunedModel::path_for(std::string_view module) const {
  charge(budget_, 1 + tuning_.target_modules.size() + tuning_.exclude_modules.size() +
                      tuning_.modules_to_save.size() + tuning_.frozen_modules.size() +
                      tuning_.rank_pattern.size() + tuning_.layers_to_transform.size());
  return path_of(names_, module);
}

bool TunedModel::all_linear() const {
  return tuning_.target_modules.size() == 1 && tuning_.target_modules.front() == kAllLinear;
}

// transformers_weight_conversion.py, _convert_peft_config_moe: one of the names before fusion, alone or after a dot.
bool TunedModel::targets_expert(std::string_view name) const {
  charge(budget_, 1 + tuning_.target_modules.size());
  return all_linear() || std::any_of(tuning_.target_modules.begin(), tuning_.target_modules.end(),
                                     [&](const std::string& given) { return path_matches(name, given); });
}

// lora/layer.py, ParamWrapper.__init__.
Result<void> TunedModel::check_experts() const {
  if (names_.experts == nullptr) {
    return {};
  }
  const ExpertTargets& experts = *names_.experts;
  const auto targeted = std::count_if(experts.up.begin(), experts.up.end(),
                                      [&](const char* name) { return targets_expert(name); });
  if (targeted > 0 && static_cast<std::size_t>(targeted) < experts.up.size()) {
    return bad("targetModules", std::string(experts.up[0]) + " and " + experts.up[1] +
                                    " of experts are one weight in transformers 5: peft takes both or none");
  }
  const bool any = targeted > 0 || targets_expert(experts.down) || targets_expert(experts.router);
  if (any && tuning_.method == crds::FineTuningMethod::kDoRA) {
    return bad("method",
               "peft has no DoRA for the weights of experts and their router; name other targetModules");
  }
  if (any && tuning_.dropout > 0) {
    return bad("dropout",
               "peft has no dropout for adapters of experts and their router; set it to 0, or name other "
               "targetModules");
  }
  return {};
}

std::int64_t TunedModel::rank_of(std::string_view path, std::int64_t otherwise) const {
  for (const crds::RankOfModules& ranks : tuning_.rank_pattern) {
    if (path_matches(ranks.module, path)) {
      return ranks.rank;
    }
  }
  return otherwise;
}

// Adapters of parameters, which have no layer's number to be chosen by (tuners_utils.py: _inject_parameters).
std::optional<Adapter> TunedModel::expert_adapter(std::string_view own) const {
  if (names_.experts == nullptr) {
    return std::nullopt;
  }
  const ExpertTargets& experts = *names_.experts;
  const std::int64_t rank = tuning_.rank > 0 ? tuning_.rank : kDefaultRank;
  if (own.ends_with("mlp.router") && targets_expert(experts.router)) {
    return Adapter{.rank = rank_of("mlp.gate.weight", rank)};
  }
  if (own.ends_with("mlp.experts.down") && targets_expert(experts.down)) {
    return Adapter{.rank = rank_of("mlp.experts.down_proj", rank)};
  }
  if (own.ends_with("mlp.experts.gate_up") && targets_expert(experts.up[0])) {
    // The rank of each of the weights that were fused.
    const auto fused = static_cast<std::int64_t>(experts.up.size());
    return Adapter{.rank = rank_of("mlp.experts.gate_up_proj", rank * fused)};
  }
  return std::nullopt;
}

// tuners_utils.py: check_target_module_exists and _maybe_include_all_linear_layers.
bool TunedModel::is_target(std::string_view own, std::string_view path) const {
  if (path.empty() || any(tuning_.exclude_modules, path, path_matches) ||
      any_around(tuning_.modules_to_save, path, path_matches)) {
    return false;
  }
  if (names_.experts != nullptr && named_as_expert(*names_.experts, path)) {
    return false;
  }
  if (all_linear()) {
    return is_linear(names_, own) && own != kHead;
  }
  const std::vector<std::string>& given = tuning_.target_modules;
  const bool matched = given.empty() ? std::any_of(names_.targets.begin(), names_.targets.end(),
                                                   [&](const char* key) { return path_matches(key, path); })
                                     : any(given, path, path_matches);
  const std::vector<std::int64_t>& layers = tuning_.layers_to_transform;
  return matched && (layers.empty() || std::find(given.begin(), given.end(), path) != given.end() ||
                     std::find(layers.begin(), layers.end(), number_of(own)) != layers.end());
}

std::optional<Adapter> TunedModel::adapter_of(std::string_view module) const {
  if (!adapters()) {
    return std::nullopt;
  }
  if (!is_linear(names_, module)) {
    return expert_adapter(module);
  }
  const std::string path = path_for(module);
  if (!is_target(module, path)) {
    return std::nullopt;
  }
  return Adapter{.rank = rank_of(path, tuning_.rank > 0 ? tuning_.rank : kDefaultRank),
                 .dropout = tuning_.dropout,
                 .dora = tuning_.method == crds::FineTuningMethod::kDoRA};
}

bool TunedModel::adapts_weight(std::string_view module) const {
  return adapters() && !is_linear(names_, module) && expert_adapter(module).has_value();
}

bool TunedModel::copies(std::string_view module) const {
  return adapters() && any_around(tuning_.modules_to_save, path_for(module), ends_with);
}

bool TunedModel::freezes(std::string_view module) const {
  const std::int64_t layer = number_of(module);
  return (layer >= 0 && layer < tuning_.frozen_layers) ||
         any_around(tuning_.frozen_modules, path_for(module), path_matches);
}

bool TunedModel::trains(std::string_view parameter) const {
  const std::string_view module = module_of(parameter);
  if (!adapters()) {
    return !freezes(module);
  }
  // lora/model.py: _mark_only_adapters_as_trainable.
  switch (tuning_.bias) {
    case crds::TrainedBiases::kNone: return false;
    case crds::TrainedBiases::kAll: return parameter.ends_with(".bias");
    case crds::TrainedBiases::kLoRAOnly:
      return parameter.ends_with(".bias") && adapter_of(module).has_value();
  }
  return false;
}

// transformers leaves the output layer as it is (quantizers/base.py: get_keys_to_not_convert).
bool TunedModel::quantises(std::string_view module) const {
  return tuning_.quantization != crds::Quantization::kNone && is_linear(names_, module) && module != kHead;
}

bool TunedModel::keeps_inputs() const {
  constexpr TorchVersion kDropsInputs = 44;  // 0.43.2 does, 0.43.0 and 0.43.1 do not
  return !tuning_.bitsandbytes_version.empty() &&
         torch_version_of(tuning_.bitsandbytes_version) < kDropsInputs;
}

bool TunedModel::by_layer() const {
  const bool ranks = std::any_of(tuning_.rank_pattern.begin(), tuning_.rank_pattern.end(),
                                 [](const crds::RankOfModules& each) { return has_digit({each.module}); });
  return tuning_.frozen_layers > 0 || !tuning_.layers_to_transform.empty() || ranks ||
         has_digit(tuning_.target_modules) || has_digit(tuning_.exclude_modules) ||
         has_digit(tuning_.modules_to_save) || has_digit(tuning_.frozen_modules);
}

}  // namespace plimsoll::estimator::spec
