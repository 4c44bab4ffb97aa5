// The hand-written matchers say the same as the patterns beside them.
#include "crds/field_rules.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>
#include <string>

#include "tests/testing/random_seed.h"

namespace plimsoll::crds {
namespace {

struct Rule {
  const char* name;
  const char* pattern;
  bool (*matches)(std::string_view);
  const char* alphabet;  // what random strings are made of: enough of what matches, and some of what does not
};

template <const DecimalRule& kRule>
bool is_decimal(std::string_view text) {
  return parse_decimal(kRule, text).has_value();
}

bool is_bytes(std::string_view text) {
  return obeys(kPositiveBytes, text);
}

const Rule kRules[] = {
    {"JobName", kJobName.pattern, kJobName.matches, "az09-A."},
    {"TableName", kTableName.pattern, kTableName.matches, "aZ0_./:-, "},
    {"FamilyName", kFamilyName.pattern, kFamilyName.matches, "aZ0._-/"},
    {"RequiredFamilyName", kRequiredFamilyName.pattern, kRequiredFamilyName.matches, "aZ0._-/"},
    {"ConfigMapName", kConfigMapName.pattern, kConfigMapName.matches, "az0-.A"},
    {"ConfigMapKey", kConfigMapKey.pattern, kConfigMapKey.matches, "aZ0-._/"},
    {"ControllerName", kControllerName.pattern, kControllerName.matches, "az0-./A@ "},
    {"ContainerName", kContainerName.pattern, kContainerName.matches, "az0-A."},
    {"ComputeCapability", kComputeCapability.pattern, kComputeCapability.matches, "0189.."},
    {"CudaVersion", kCudaVersion.pattern, kCudaVersion.matches, "0189.."},
    {"TorchVersion", kTorchVersion.pattern, kTorchVersion.matches, "0189.."},
    {"BitsandbytesVersion", kBitsandbytesVersion.pattern, kBitsandbytesVersion.matches, "0189.."},
    {"DriverVersion", kDriverVersion.pattern, kDriverVersion.matches, "0189.a"},
    {"Percentage", kPercentage.pattern, kPercentage.matches, "019.%"},
    {"PoolingFactor", kPoolingFactor.pattern, is_decimal<kPoolingFactor>, "0129.-"},
    {"LookupFrequency", kLookupFrequency.pattern, is_decimal<kLookupFrequency>, "0019.1"},
    {"PeakCorrection", kPeakCorrection.pattern, is_decimal<kPeakCorrection>, "0.45013"},
    {"CostPerHour", kCostPerHour.pattern, is_decimal<kCostPerHour>, "0129.e"},
    {"BumpUpRatio", kBumpUpRatio.pattern, is_decimal<kBumpUpRatio>, "0129.1"},
    {"Bytes", kPositiveBytes.pattern, is_bytes, "09.kKMGiTPEm"},
};

TEST(FieldRules, MatchersAgreeWithPatternsOnRandomText) {
  const std::uint32_t seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const Rule& rule : kRules) {
    const std::regex pattern(rule.pattern, std::regex::ECMAScript);
    const std::string alphabet = rule.alphabet;
    int matched = 0;
    for (int i = 0; i < 20'000; ++i) {
      std::string text;
      for (std::size_t length = random() % 9; text.size() < length;) {
        text += alphabet[random() % alphabet.size()];
      }
      const bool expected = std::regex_match(text, pattern);
      matched += expected;
      ASSERT_EQ(rule.matches(text), expected) << rule.name << " \"" << text << "\"";
    }
    EXPECT_GT(matched, 20) << rule.name << " was hardly tried on text that matches";
  }
}

TEST(FieldRules, LongDigitsAreCounted) {
  EXPECT_TRUE(is_decimal<kPoolingFactor>("999999.999999999"));
  EXPECT_FALSE(is_decimal<kPoolingFactor>("1000000"));
  EXPECT_FALSE(is_decimal<kPoolingFactor>("0.1234567890"));
  EXPECT_TRUE(is_bytes("999999999999999999.123456789Ei"));
  EXPECT_FALSE(is_bytes("1234567890123456789"));
  EXPECT_TRUE(is_decimal<kCostPerHour>("999999999.999999"));
  EXPECT_FALSE(is_decimal<kCostPerHour>("1234567890"));
}

TEST(FieldRules, LengthIsPartOfARule) {
  EXPECT_TRUE(obeys(kJobName, std::string(50, 'a')));
  EXPECT_FALSE(obeys(kJobName, std::string(51, 'a')));
  EXPECT_FALSE(obeys(kJobName, ""));
  EXPECT_TRUE(obeys(kFamilyName, ""));
}

}  // namespace
}  // namespace plimsoll::crds
