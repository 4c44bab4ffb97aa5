// What the schemas demand of one value: its bounds, its pattern, its form in words. The pattern stands here
// as the schema spells it; `matches` is the same by hand, for std::regex is slow and recurses on long input.
// tests/crds proves that they agree, and that the schema says the same. Inside crds/ only. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
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

// An integer, or a decimal in quotes: how the API writes real numbers (no floats in spec).
struct DecimalRule {
  const char* pattern;
  std::int64_t longest;
  Range integers;
  double least;
  double most;
  bool (*matches)(std::string_view text);
  const char* form;
};

// A Kubernetes quantity of bytes.
struct QuantityRule {
  const char* pattern;
  std::int64_t longest;
  std::int64_t least;
  bool (*matches)(std::string_view text);
};

extern const TextRule kJobName;  // metadata.name of a TrainingJob
extern const TextRule kTableName;
extern const TextRule kFamilyName;  // may be empty
extern const TextRule kRequiredFamilyName;
extern const TextRule kGpuModelName;  // may be empty
extern const TextRule kRequiredGpuModelName;
extern const TextRule kProductLabel;
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

}  // namespace plimsoll::crds
