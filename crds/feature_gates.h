// FeatureGates: which of the features that are not finished are on, in one cluster. Stages, names and the text of --feature-gates are as of
// Kubernetes' own components: Alpha is off and Beta is on unless the gate says otherwise, GA is always on.
//
//   const Result<FeatureGates> gates = FeatureGates::parse({"WorkloadSizing=false", "AllAlpha=true"});
//   if (gates && gates->enabled(Feature::kWorkloadSizing)) size();
//
// A feature is switched in one place, and what users give for one that is off is refused or warned of with off_text().
// docs/feature_gates.md has the table of all. Plain values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace plimsoll::crds {

enum class Stage { kAlpha, kBeta, kGA };

struct FeatureSpec {
  const char* name;
  Stage stage;
  const char* since;  // the release in which it reached this stage

  constexpr bool on_by_default() const { return stage != Stage::kAlpha; }
};

// In the order of kFeatures, which is that of the names.
enum class Feature { kDCGMLearning, kSwapTraining, kTrainerAutoconfPlugin, kWorkloadSizing };

inline constexpr auto kFeatures = std::to_array<FeatureSpec>({
    {"DCGMLearning", Stage::kBeta, "0.1"},
    {"SwapTraining", Stage::kBeta, "0.1"},
    {"TrainerAutoconfPlugin", Stage::kBeta, "0.1"},
    {"WorkloadSizing", Stage::kBeta, "0.1"},
});

// "ALPHA" or "BETA"; empty for GA, as in Kubernetes' metrics.
std::string_view name_of(Stage stage);

// Whether each of `features` is on, by texts of the form Name=true|false,...; later texts add to earlier ones. AllAlpha and AllBeta are for
// those of a stage that are not named. Errors: kInvalid for an unknown name, a value that is no bool, a name with two values, and GA that
// is turned off.
Result<std::vector<bool>> parse_feature_gates(const std::vector<std::string>& texts,
                                              std::span<const FeatureSpec> features);

class FeatureGates {
 public:
  // By each feature's stage.
  FeatureGates();
  static Result<FeatureGates> parse(const std::vector<std::string>& texts);

  bool enabled(Feature feature) const { return enabled_[static_cast<std::size_t>(feature)]; }

 private:
  std::array<bool, kFeatures.size()> enabled_;
};

// "the feature gate WorkloadSizing is off in this cluster"
std::string off_text(Feature feature);

// One line for each gate that can be set, with stage and default, for --help.
std::string feature_gates_help();

}  // namespace plimsoll::crds
