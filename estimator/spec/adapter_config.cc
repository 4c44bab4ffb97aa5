#include "estimator/spec/adapter_config.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/json/view.h"

namespace plimsoll::estimator::inline spec {
namespace {

constexpr std::int64_t kMaxRank = 65536;  // as the API's own limits
constexpr std::size_t kMaxNames = 256;
constexpr std::size_t kMaxLayerNumbers = 4096;
constexpr std::int64_t kMaxLayer = 65535;
constexpr std::size_t kMaxName = 128;

// Keys that do not change which tensors exist: where the model is, initial values, and the factor of the product.
constexpr std::array<std::string_view, 10> kWithoutEffect = {"auto_mapping",   "base_model_name_or_path",
                                                             "revision",       "peft_version",
                                                             "inference_mode", "loftq_config",
                                                             "corda_config",   "megatron_core",
                                                             "lora_ga_config", "qalora_group_size"};

// LoraConfig.init_lora_weights: those that fill weights which exist anyway. "pissa_niter_N" is one too, "eva" is treated
// on its own, and "mica" freezes B (peft/tuners/lora/variants.py: MiCALinearVariant).
constexpr std::array<std::string_view, 7> kInitialValues = {"gaussian", "olora",      "pissa",  "corda",
                                                            "loftq",    "orthogonal", "lora_ga"};

bool is_nothing(JsonView value) {
  if (value.is_array()) {
    return value.elements().empty();
  }
  if (value.is_object()) {
    return value.members().empty();
  }
  return value.is_null() || value.boolean() == std::optional<bool>(false);
}

class AdapterReader {
 public:
  explicit AdapterReader(JsonView config) : config_(config) {}

  Result<crds::FineTuning> read() {
    const std::string_view type = text("peft_type", "");
    if (!error_ && type != "LORA") {
      return Error(ErrorCode::kUnsupported,
                   "adapter_config.json: peft_type " +
                       (type.empty() ? std::string("is missing")
                                     : "\"" + std::string(type.substr(0, 64)) + "\" is not modelled") +
                       "; LORA is, with use_dora too");
    }
    tuning_.method =
        boolean("use_dora", false) ? crds::FineTuningMethod::kDoRA : crds::FineTuningMethod::kLoRA;
    tuning_.rank = integer("r", 8, 1, kMaxRank);
    tuning_.dropout = share("lora_dropout");
    targets();
    tuning_.exclude_modules = names("exclude_modules");
    tuning_.modules_to_save = names("modules_to_save");
    layers();
    ranks();
    biases();
    task();
    values_of_weights();
    refuse_others();
    return error_ ? Result<crds::FineTuning>(*error_) : tuning_;
  }

 private:
  void fail(std::string_view key, const std::string& what) {
    if (!error_) {
      error_ = invalid("adapter_config.json: " + std::string(key.substr(0, 64)) + " " + what);
    }
  }
  void unsupported(std::string_view key, const std::string& what) {
    if (!error_) {
      error_ = Error(ErrorCode::kUnsupported,
                     "adapter_config.json: " + std::string(key.substr(0, 64)) + " " + what);
    }
  }

  // Nothing for an absent key, or a null, which peft writes for an absent value.
  std::optional<JsonView> find(std::string_view key) {
    read_.push_back(key);
    const std::optional<JsonView> found = config_.member(key);
    return found && !found->is_null() ? found : std::nullopt;
  }
  std::string_view text(std::string_view key, std::string_view otherwise) {
    const std::optional<JsonView> found = find(key);
    const std::optional<std::string_view> value = found ? found->text() : otherwise;
    if (!value) {
      fail(key, "must be a string");
    }
    return value.value_or(otherwise);
  }
  bool boolean(std::string_view key, bool otherwise) {
    const std::optional<JsonView> found = find(key);
    const std::optional<bool> value = found ? found->boolean() : otherwise;
    if (!value) {
      fail(key, "must be true or false");
    }
    return value.value_or(otherwise);
  }
  std::int64_t in_range(std::string_view key, JsonView value, std::int64_t least, std::int64_t most) {
    const std::optional<std::int64_t> number = value.integer();
    if (!number || *number < least || *number > most) {
      fail(key, "must be an integer from " + std::to_string(least) + " to " + std::to_string(most));
      return least;
    }
    return *number;
  }
  std::int64_t integer(std::string_view key, std::int64_t otherwise, std::int64_t least, std::int64_t most) {
    const std::optional<JsonView> found = find(key);
    return found ? in_range(key, *found, least, most) : otherwise;
  }
  double share(std::string_view key) {
    const std::optional<JsonView> found = find(key);
    const std::optional<double> value = found ? found->number() : 0.0;
    if (!value || !(*value >= 0 && *value < 1)) {
      fail(key, "must be a number of at least 0 and below 1");
      return 0;
    }
    return *value;
  }

  std::vector<std::string> names(std::string_view key) {
    std::vector<std::string> list;
    const std::optional<JsonView> found = find(key);
    if (!found) {
      return list;
    }
    if (found->text()) {
      unsupported(key, "is a regular expression, which is not supported; list the modules' names");
      return list;
    }
    if (!found->is_array() || found->elements().size() > kMaxNames) {
      fail(key, "must be a list of at most " + std::to_string(kMaxNames) + " names");
      return list;
    }
    for (const JsonView each : found->elements()) {
      list.push_back(name(key, each.text()));
    }
    return list;
  }
  std::string name(std::string_view key, std::optional<std::string_view> value) {
    if (!value || value->empty() || value->size() > kMaxName) {
      fail(key, "must have names of 1 to " + std::to_string(kMaxName) + " characters");
    }
    return std::string(value.value_or("").substr(0, kMaxName));
  }

  void targets() {
    constexpr std::string_view kAllLinear = "all-linear";
    const std::optional<JsonView> found = config_.member("target_modules");
    std::string lower(found ? found->text().value_or("").substr(0, kMaxName) : "");
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    if (lower == kAllLinear) {
      read_.emplace_back("target_modules");
      tuning_.target_modules = {std::string(kAllLinear)};
    } else {
      tuning_.target_modules = names("target_modules");
    }
  }

  void layers() {
    constexpr std::string_view kKey = "layers_to_transform";
    const std::optional<JsonView> found = find(kKey);
    if (found && found->is_array()) {
      if (found->elements().size() > kMaxLayerNumbers) {
        fail(kKey, "must have at most " + std::to_string(kMaxLayerNumbers) + " numbers");
        return;
      }
      for (const JsonView each : found->elements()) {
        tuning_.layers_to_transform.push_back(in_range(kKey, each, 0, kMaxLayer));
      }
    } else if (found) {
      tuning_.layers_to_transform = {in_range(kKey, *found, 0, kMaxLayer)};
    }
  }

  void ranks() {
    constexpr std::string_view kKey = "rank_pattern";
    const std::optional<JsonView> found = find(kKey);
    if (found && (!found->is_object() || found->members().size() > kMaxNames)) {
      fail(kKey, "must be an object of at most " + std::to_string(kMaxNames) + " names with their ranks");
      return;
    }
    if (!found) {
      return;
    }
    for (const auto& [key, value] : found->members()) {
      if (key.find_first_of("^$*+?()[]{}|\\") != std::string_view::npos) {
        unsupported(
            kKey, "has a regular expression, which is not supported; name modules by the end of their path");
      }
      tuning_.rank_pattern.push_back({.module = name(kKey, key), .rank = in_range(kKey, value, 1, kMaxRank)});
    }
  }

  void biases() {
    const std::string_view bias = text("bias", "none");
    if (bias == "all") {
      tuning_.bias = crds::TrainedBiases::kAll;
    } else if (bias == "lora_only") {
      tuning_.bias = crds::TrainedBiases::kLoRAOnly;
    } else if (bias != "none") {
      fail("bias", "must be none, all or lora_only");
    }
  }

  // Keys that change only values, but are checked like the others: a wrong one is a mistake somewhere.
  void values_of_weights() {
    const std::optional<JsonView> alpha = find("lora_alpha");
    if (alpha && !alpha->number()) {
      fail("lora_alpha", "must be a number");
    }
    const std::optional<JsonView> pattern = find("alpha_pattern");
    if (pattern && !pattern->is_object()) {
      fail("alpha_pattern", "must be an object of names with their alphas");
    }
    boolean("use_rslora", false);
    boolean("fan_in_fan_out", false);
    initial_values();
  }

  void initial_values() {
    constexpr std::string_view kKey = "init_lora_weights";
    const std::optional<JsonView> found = find(kKey);
    const std::optional<JsonView> eva = find("eva_config");
    if (!found || found->boolean()) {
      return;
    }
    const std::string_view name = found->text().value_or("");
    if (name == "eva") {
      redistributed(eva);
    } else if (name == "mica") {
      unsupported(kKey, "mica freezes each adapter's B, which is not modelled");
    } else if (!name.starts_with("pissa_niter_") &&
               std::find(kInitialValues.begin(), kInitialValues.end(), name) == kInitialValues.end()) {
      fail(kKey,
           "must be true, false, or gaussian, eva, olora, pissa, pissa_niter_N, corda, loftq, lora_ga or "
           "orthogonal");
    }
  }

  // EVA gives each module another rank, from its data, up to rho times r, and writes them to rank_pattern
  // (peft/tuners/lora/eva.py: _load_eva_state_dict). With a rho of 1, or afterwards, they are known.
  void redistributed(std::optional<JsonView> config) {
    const std::optional<JsonView> given = config ? config->member("rho") : std::nullopt;
    constexpr double kDefault = 2;  // of EvaConfig.rho
    const std::optional<double> rho = given ? given->number() : kDefault;
    if (!rho || *rho < 1) {
      fail("eva_config", "must have a rho of at least 1");
    } else if (*rho > 1 && tuning_.rank_pattern.empty()) {
      unsupported(
          "init_lora_weights",
          "eva gives modules other ranks from their data: take the adapter_config.json that is saved after the "
          "initialisation, which has them in rank_pattern, or set eva_config.rho to 1");
    }
  }

  // The other tasks have another head than the model that a config.json describes, which peft trains as well.
  void task() {
    const std::string_view type = text("task_type", "CAUSAL_LM");
    if (type == "SEQ_CLS" || type == "TOKEN_CLS" || type == "QUESTION_ANS") {
      unsupported("task_type", std::string(type) +
                                   " has a head of its own, which is not modelled; record the model "
                                   "with python3 -m plimsoll.export");
    } else if (type != "CAUSAL_LM" && type != "SEQ_2_SEQ_LM" && type != "FEATURE_EXTRACTION") {
      fail("task_type",
           "must be CAUSAL_LM, SEQ_2_SEQ_LM or FEATURE_EXTRACTION; SEQ_CLS, TOKEN_CLS and QUESTION_ANS "
           "are not modelled");
    }
  }

  // A key of a later peft that is off is no key.
  void refuse_others() {
    for (const auto& [key, value] : config_.members()) {
      const bool known = std::find(read_.begin(), read_.end(), key) != read_.end() ||
                         std::find(kWithoutEffect.begin(), kWithoutEffect.end(), key) != kWithoutEffect.end();
      if (!known && !is_nothing(value)) {
        unsupported(key, "is not modelled");
      }
    }
  }

  JsonView config_;
  crds::FineTuning tuning_;
  std::vector<std::string_view> read_;
  std::optional<Error> error_;
};

}  // namespace

Result<crds::FineTuning> read_adapter_config(const std::string& text) {
  const Result<Json> json = parse_json(text);
  if (!json || !json->isObject()) {
    return invalid("adapter_config.json must be a JSON object" +
                   (json ? std::string() : ": " + json.error().message));
  }
  return AdapterReader(JsonView(*json)).read();
}

}  // namespace plimsoll::estimator::spec
