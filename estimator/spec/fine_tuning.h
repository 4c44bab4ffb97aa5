// TunedModel: which parameters of a transformer are trained, which linear layers have an adapter, and which are
// quantised, as peft and bitsandbytes decide it from a job's training.fineTuning.
//
//   Result<TunedModel> tuned = TunedModel::of(*training.fine_tuning, spec.model_type, spec.layers);
//   tuned->trains("layers.3.attention_norm.weight");          // false with adapters
//   tuned->adapter_of("layers.3.attention.q");                // its rank, if it has one
//
// Modules are named as the lowering names them. Refers to the job's fineTuning. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/budget.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/spec/module_names.h"

namespace plimsoll::estimator::inline spec {

struct Adapter {
  std::int64_t rank = 0;
  double dropout = 0;
  bool dora = false;
};

class TunedModel {
 public:
  // Errors: kInvalid naming the field: names that no module of the family has, an unknown family. kUnsupported for what
  // is not modelled.
  static Result<TunedModel> of(const crds::FineTuning& tuning, const std::string& model_type,
                               std::int64_t layers, Budget* budget = nullptr);

  const crds::FineTuning& tuning() const { return tuning_; }

  // Of a parameter, the module's name with ".weight" or ".bias" after it.
  bool trains(std::string_view parameter) const;
  // True for a module that is frozen, and has a copy that is trained instead (modules_to_save).
  bool copies(std::string_view module) const;
  std::optional<Adapter> adapter_of(std::string_view module) const;
  // True for a router, whose adapter changes its weight: it is not nn.Linear.
  bool adapts_weight(std::string_view module) const;
  bool quantises(std::string_view module) const;
  // Whether products with weights of 4 bits keep their inputs for backward, by bitsandbytes' version.
  bool keeps_inputs() const;
  // True if layers may differ by their number.
  bool by_layer() const;

 private:
  TunedModel(const crds::FineTuning& tuning, const ModuleNames& names, Budget* budget)
      : tuning_(tuning), names_(names), budget_(budget) {}

  bool adapters() const { return tuning_.method != crds::FineTuningMethod::kFull; }
  bool all_linear() const;
  std::string path_for(std::string_view module) const;
  bool is_target(std::string_view own, std::string_view path) const;
  bool freezes(std::string_view module) const;
  Result<void> check_names(std::int64_t layers) const;
  Result<void> check_experts() const;
  bool targets_expert(std::string_view name) const;
  std::optional<Adapter> expert_adapter(std::string_view own) const;
  std::int64_t rank_of(std::string_view path, std::int64_t otherwise) const;

  const crds::FineTuning& tuning_;
  const ModuleNames& names_;
  Budget* budget_;  // each module's comparisons with the user's names are charged
};

}  // namespace plimsoll::estimator::spec
