#include "estimator/types/runtime_settings.h"

#include <charconv>

namespace plimsoll::estimator::inline types {
namespace {

// Ten times the largest value in practice; sums of it stay far below 2^63.
constexpr std::int64_t kMaxKib = std::int64_t{1} << 24;
constexpr std::int64_t kMaxBuffers = 1024;

std::optional<std::int64_t> whole_number(std::string_view text, std::int64_t limit) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0 || value > limit) {
    return std::nullopt;
  }
  return value;
}

// The value of an environment variable in any container; null if it is not set, or set by a reference.
const Json* variable(const Json& training_job, const char* name, std::vector<std::string>& warnings) {
  const Json& containers = member(training_job, {"spec", "template", "spec", "containers"});
  if (!containers.isArray()) {
    return nullptr;
  }
  for (const Json& container : containers) {
    const Json& variables = member(container, {"env"});
    if (!variables.isArray()) {
      continue;
    }
    for (const Json& each : variables) {
      if (text_member(each, {"name"}) != name) {
        continue;
      }
      if (const Json& value = member(each, {"value"}); value.isString()) {
        return &value;
      }
      warnings.push_back(std::string(name) +
                         " is not a plain value in the pod template; the estimate uses its default");
    }
  }
  return nullptr;
}

}  // namespace

Result<Bytes> parse_cublas_workspace(std::string_view text) {
  const auto refused = [&] {
    return invalid(
        "CUBLAS_WORKSPACE_CONFIG must be :SIZE:COUNT, SIZE in KiB, once or several times (:4096:2:16:8)",
        std::string(text.substr(0, 64)));
  };
  Bytes total;
  std::string_view rest = text;
  while (!rest.empty()) {
    std::int64_t numbers[2] = {0, 0};
    for (std::int64_t& number : numbers) {
      if (!rest.starts_with(':')) {
        return refused();
      }
      rest.remove_prefix(1);
      const std::string_view digits = rest.substr(0, rest.find(':'));
      const std::optional<std::int64_t> value =
          whole_number(digits, &number == numbers ? kMaxKib : kMaxBuffers);
      if (!value) {
        return refused();
      }
      number = *value;
      rest.remove_prefix(digits.size());
    }
    total += 1_KiB * numbers[0] * numbers[1];
  }
  if (text.empty()) {
    return refused();
  }
  return total;
}

RuntimeSettings runtime_settings_of(const Json& training_job, std::vector<std::string>& warnings) {
  RuntimeSettings settings;
  const Json* allocator = variable(training_job, "PYTORCH_ALLOC_CONF", warnings);
  if (allocator == nullptr) {
    allocator = variable(training_job, "PYTORCH_CUDA_ALLOC_CONF", warnings);
  }
  const auto store = [&](const auto& parsed, auto& setting, const char* fallback) {
    if (parsed) {
      setting = *parsed;
    } else {
      warnings.push_back(parsed.error().message + "; the estimate uses " + fallback);
    }
  };
  if (allocator != nullptr) {
    store(parse_allocator_settings(text_member(*allocator, {})), settings.allocator,
          "the allocator's defaults");
  }
  if (const Json* cublas = variable(training_job, "CUBLAS_WORKSPACE_CONFIG", warnings)) {
    store(parse_cublas_workspace(text_member(*cublas, {})), settings.cublas_workspace, "cuBLAS's default");
  }
  if (const Json* loading = variable(training_job, "CUDA_MODULE_LOADING", warnings)) {
    const std::string value = text_member(*loading, {});
    if (value == "EAGER" || value == "LAZY") {
      settings.lazy_modules = value == "LAZY";
    } else if (value != "DEFAULT" && !value.empty()) {
      warnings.push_back(
          "CUDA_MODULE_LOADING must be DEFAULT, LAZY or EAGER; the estimate uses CUDA's default");
    }
  }
  return settings;
}

}  // namespace plimsoll::estimator::types
