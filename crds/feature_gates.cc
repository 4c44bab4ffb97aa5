#include "crds/feature_gates.h"

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "base/words.h"

namespace plimsoll::crds {
namespace {

// For all features of a stage.
constexpr auto kGroups =
    std::to_array<std::pair<const char*, Stage>>({{"AllAlpha", Stage::kAlpha}, {"AllBeta", Stage::kBeta}});

std::string_view trimmed(std::string_view text) {
  const std::size_t first = std::min(text.find_first_not_of(' '), text.size());
  text.remove_prefix(first);
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

std::vector<std::string> names_of(std::span<const FeatureSpec> features) {
  std::vector<std::string> names;
  for (const auto& [name, stage] : kGroups) {
    names.emplace_back(name);
  }
  for (const FeatureSpec& feature : features) {
    names.emplace_back(feature.name);
  }
  return names;
}

using Values = std::map<std::string, bool, std::less<>>;

Result<void> read(std::string_view setting, const std::vector<std::string>& known, Values& values) {
  const std::size_t equals = setting.find('=');
  const std::string name(trimmed(setting.substr(0, equals)));
  const std::string_view value =
      equals == std::string_view::npos ? std::string_view() : trimmed(setting.substr(equals + 1));
  if (std::ranges::find(known, name) == known.end()) {
    return invalid("there is no feature gate \"" + name + "\"" + did_you_mean(name, known) + "; known are " +
                   listed(known, known.size()));
  }
  if (value != "true" && value != "false") {
    return invalid("feature gate " + name + " must be true or false, as in " + name + "=true, is \"" +
                   std::string(value) + "\"");
  }
  const auto [place, added] = values.emplace(name, value == "true");
  if (!added && place->second != (value == "true")) {
    return invalid("feature gate " + name + " is given both as true and as false");
  }
  return {};
}

std::optional<bool> value_in(const Values& values, std::string_view name) {
  const auto found = values.find(name);
  return found == values.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

std::string_view name_of(Stage stage) {
  return stage == Stage::kAlpha ? "ALPHA" : stage == Stage::kBeta ? "BETA" : "";
}

Result<std::vector<bool>> parse_feature_gates(const std::vector<std::string>& texts,
                                              std::span<const FeatureSpec> features) {
  const std::vector<std::string> known = names_of(features);
  Values values;
  for (const std::string& text : texts) {
    std::istringstream settings(text);
    for (std::string setting; std::getline(settings, setting, ',');) {
      if (trimmed(setting).empty()) {
        continue;  // as Kubernetes' components do: "A=true," and ""
      }
      if (Result<void> done = read(setting, known, values); !done) {
        return done.error();
      }
    }
  }
  std::vector<bool> enabled;
  for (const FeatureSpec& feature : features) {
    std::optional<bool> value = value_in(values, feature.name);
    if (feature.stage == Stage::kGA && value == false) {
      return invalid(std::string("feature gate ") + feature.name +
                     " can't be turned off: the feature is GA, and the gate will be removed");
    }
    for (const auto& [name, stage] : kGroups) {
      if (!value && stage == feature.stage) {
        value = value_in(values, name);
      }
    }
    enabled.push_back(value.value_or(feature.on_by_default()));
  }
  return enabled;
}

FeatureGates::FeatureGates() : enabled_() {
  std::ranges::transform(kFeatures, enabled_.begin(), &FeatureSpec::on_by_default);
}

Result<FeatureGates> FeatureGates::parse(const std::vector<std::string>& texts) {
  const Result<std::vector<bool>> enabled = parse_feature_gates(texts, kFeatures);
  if (!enabled) {
    return enabled.error();
  }
  FeatureGates gates;
  std::ranges::copy(*enabled, gates.enabled_.begin());
  return gates;
}

std::string off_text(Feature feature) {
  return std::string("the feature gate ") + kFeatures[static_cast<std::size_t>(feature)].name +
         " is off in this cluster";
}

std::string feature_gates_help() {
  std::string text;
  const auto add = [&](std::string_view name, Stage stage, bool on) {
    text += "\n" + std::string(name) + "=true|false (" + std::string(name_of(stage)) +
            " - default=" + (on ? "true" : "false") + ")";
  };
  for (const auto& [name, stage] : kGroups) {
    add(name, stage, false);
  }
  for (const FeatureSpec& feature : kFeatures) {
    if (feature.stage != Stage::kGA) {
      add(feature.name, feature.stage, feature.on_by_default());
    }
  }
  return text;
}

}  // namespace plimsoll::crds
