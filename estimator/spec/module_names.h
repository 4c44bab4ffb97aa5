// What the modules of a family are called in transformers, by which peft finds them: the lowering's own names are the
// same for all families.
//
//   const ModuleNames* names = module_names("gpt2");
//   path_of(*names, "layers.3.attention.qkv");   // "transformer.h.3.attn.c_attn"
//
// Constant tables. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace plimsoll::estimator::inline spec {

struct ModuleName {
  const char* own;   // of a layer's modules, without "layers.N."
  const char* path;  // likewise, without the path of the layer
  // nn.Linear or Conv1D: may have an adapter, and be quantised.
  bool linear = false;
};

// A router and fused expert weights that adapters reach by the names that they had before transformers 5, where each
// expert had linear layers of its own (peft, utils/transformers_weight_conversion.py: _MOE_TARGET_MODULE_MAPPING).
struct ExpertTargets {
  const char* router;
  std::span<const char* const> up;  // fused into one weight: all or none
  const char* down;
};

struct ModuleNames {
  const char* layers;                    // path of the list of layers
  std::span<const ModuleName> of_layer;  // modules of a layer
  std::span<const ModuleName> of_model;  // the others
  std::span<const char* const> targets;  // those that have an adapter by peft's default
  const ExpertTargets* experts = nullptr;
};

// Null for a family whose modules are not known. Without a model_type, a transformer given by its sizes: Llama's.
const ModuleNames* module_names(std::string_view model_type);
// The families that have names, "bert, bloom, ...".
std::string families_with_module_names();

// The whole path of the lowering's module; empty if transformers has no module for it.
std::string path_of(const ModuleNames& names, std::string_view own);
// Whether it is nn.Linear or Conv1D.
bool is_linear(const ModuleNames& names, std::string_view own);

// True if the path is the key or ends with it after a dot, as peft compares (tuners_utils.py:
// check_target_module_exists).
bool path_matches(std::string_view key, std::string_view path);

}  // namespace plimsoll::estimator::spec
