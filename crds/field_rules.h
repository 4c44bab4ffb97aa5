// What the schemas demand of one value: its bounds, its pattern, and its form in words. The pattern is the schema's;
// `matches` is the same by hand, because std::regex is slow and recurses on long input. tests/crds checks that
// both agree, and that the schema has the same pattern. Inside crds/ only. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace plimsoll::crds {

enum class Presence {
  kRequired,
  kDefaulted,  // the schema fills in what the C++ member starts with
  kOptional,   // the schema fills in nothing; the C++ member keeps what it starts with
};

struct Range {
  std::int64_t least;
  std::int64_t most;
};

struct TextRule {
  const char* pattern;
  Range length;
  bool (*matches)(std::string_view text);
  const char* form;  // "must be " and then this
};

// An integer, or a decimal in quotes: how the API writes real numbers (no floats in spec). The pattern has the
// digits before and after the point, and the bounds.
struct DecimalRule {
  const char* pattern;
  std::size_t whole_digits;
  std::size_t fraction_digits;
  Range integers;
  double least;
  double most;
  const char* form;

  constexpr std::size_t longest() const { return whole_digits + 1 + fraction_digits; }
};

// A Kubernetes quantity of bytes.
struct QuantityRule {
  const char* pattern;
  std::size_t longest;
  std::int64_t least;
};

extern const TextRule kJobName;  // metadata.name of a TrainingJob
extern const TextRule kTableName;
extern const TextRule kFamilyName;  // may be empty
extern const TextRule kRequiredFamilyName;
extern const TextRule kGpuModelName;  // may be empty
extern const TextRule kRequiredGpuModelName;
extern const TextRule kProductLabel;
extern const TextRule kComputeCapability;
extern const TextRule kCudaVersion;
extern const TextRule kThroughput;           // may be empty
extern const TextRule kTorchVersion;         // may be empty
extern const TextRule kBitsandbytesVersion;  // may be empty
extern const TextRule kDriverVersion;
extern const TextRule kNodeLabel;
extern const TextRule kConfigMapName;
extern const TextRule kConfigMapKey;
extern const TextRule kControllerName;  // a domain and a path, as batch/v1 wants it; may be empty
extern const TextRule kContainerName;
extern const TextRule kPercentage;
extern const TextRule kModuleName;
extern const TextRule kModelConfig;  // the text of a Hugging Face config.json

extern const DecimalRule kPoolingFactor;
extern const DecimalRule kLookupFrequency;
extern const DecimalRule kPeakCorrection;
extern const DecimalRule kCostPerHour;
extern const DecimalRule kBumpUpRatio;

extern const QuantityRule kPositiveBytes;
extern const QuantityRule kAnyBytes;

// Length and pattern.
bool obeys(const TextRule& rule, std::string_view text);
bool obeys(const QuantityRule& rule, std::string_view text);

// Nothing for a text that the pattern refuses.
std::optional<double> parse_decimal(const DecimalRule& rule, std::string_view text);

}  // namespace plimsoll::crds
