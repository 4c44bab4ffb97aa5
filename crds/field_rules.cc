#include "crds/field_rules.h"

#include <algorithm>
#include <charconv>

namespace plimsoll::crds {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
bool is_lower_alphanumeric(char c) {
  return is_digit(c) || is_lower(c);
}
bool is_alphanumeric(char c) {
  return is_lower_alphanumeric(c) || (c >= 'A' && c <= 'Z');
}

// A letter or digit, or one of these.
template <char... kOthers>
bool is_alphanumeric_or(char c) {
  return is_alphanumeric(c) || ((c == kOthers) || ...);
}
template <char... kOthers>
bool is_lower_alphanumeric_or(char c) {
  return is_lower_alphanumeric(c) || ((c == kOthers) || ...);
}

using Characters = bool (*)(char);

// [first]([inner]*[last])?, where inner includes first and last
template <Characters kFirst, Characters kInner, Characters kLast>
bool is_word(std::string_view text) {
  return !text.empty() && kFirst(text.front()) && kLast(text.back()) &&
         std::all_of(text.begin(), text.end(), kInner);
}

constexpr auto kIsLabelValue = is_word<is_alphanumeric, is_alphanumeric_or<'.', '_', '-'>, is_alphanumeric>;
constexpr auto kIsLabelKey =
    is_word<is_alphanumeric, is_alphanumeric_or<'.', '_', '-', '/'>, is_alphanumeric>;
constexpr auto kIsDns1035Label = is_word<is_lower, is_lower_alphanumeric_or<'-'>, is_lower_alphanumeric>;
constexpr auto kIsDns1123Label =
    is_word<is_lower_alphanumeric, is_lower_alphanumeric_or<'-'>, is_lower_alphanumeric>;
constexpr auto kIsObjectName =
    is_word<is_lower_alphanumeric, is_lower_alphanumeric_or<'-', '.'>, is_lower_alphanumeric>;
constexpr Characters kKeyCharacters = is_alphanumeric_or<'-', '.', '_'>;
constexpr auto kIsConfigMapKey = is_word<kKeyCharacters, kKeyCharacters, kKeyCharacters>;
constexpr Characters kTableCharacters = is_alphanumeric_or<'_', '.', '/', ':', '-'>;
constexpr auto kIsTableName = is_word<is_alphanumeric_or<'_'>, kTableCharacters, kTableCharacters>;
constexpr Characters kModuleCharacters = is_alphanumeric_or<'_', '*', '.', '-'>;
constexpr auto kIsModuleName = is_word<is_alphanumeric_or<'_', '*'>, kModuleCharacters, kModuleCharacters>;

// A label's value, after the label's key and '=' where that is not nvidia.com/gpu.product.
bool is_node_label(std::string_view text) {
  const std::size_t equals = text.find('=');
  return equals == text.npos ? kIsLabelValue(text)
                             : kIsLabelKey(text.substr(0, equals)) && kIsLabelValue(text.substr(equals + 1));
}

bool is_optional_label_value(std::string_view text) {
  return text.empty() || kIsLabelValue(text);
}

bool is_controller_name(std::string_view text) {
  // Of a path, RFC 3986.
  constexpr Characters kPath = is_alphanumeric_or<'-', '/', '.', '_', '~', '%', '!', '$', '&', '\'', '(', ')',
                                                  '*', '+', ',', ';', '=', ':', '@'>;
  const std::size_t slash = text.find('/');
  return slash == text.npos
             ? text.empty()
             : kIsObjectName(text.substr(0, slash)) && is_word<kPath, kPath, kPath>(text.substr(slash + 1));
}

// [0-9]{1,whole}(\.[0-9]{1,fraction})?
bool is_decimal(std::string_view text, std::size_t whole, std::size_t fraction) {
  constexpr auto kIsDigits = is_word<is_digit, is_digit, is_digit>;
  const std::size_t point = std::min(text.find('.'), text.size());
  if (point > whole || !kIsDigits(text.substr(0, point))) {
    return false;
  }
  return point == text.size() || (text.size() - point - 1 <= fraction && kIsDigits(text.substr(point + 1)));
}

// [0-9]{1,major}\.[0-9]{1,minor}
template <std::size_t kMajor, std::size_t kMinor>
bool is_version(std::string_view text) {
  return text.find('.') != text.npos && is_decimal(text, kMajor, kMinor);
}

bool is_digit_or_point(char c) {
  return is_digit(c) || c == '.';
}

constexpr auto kIsDriverVersion = is_word<is_digit, is_digit_or_point, is_digit_or_point>;

bool is_optional_version(std::string_view text) {
  return text.empty() || is_version<2, 2>(text);
}

bool is_percentage(std::string_view text) {
  return text.ends_with('%') && is_decimal(text.substr(0, text.size() - 1), 2, 6);
}

bool is_optional_throughput(std::string_view text) {
  return text.empty() || is_decimal(text.substr(0, text.size() - (text.ends_with('%') ? 1 : 0)), 9, 6);
}

bool begins_a_json_object(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != text.npos && text[first] == '{';
}

constexpr const char* kLabelForm =
    "at most 63 letters, digits, '.', '_' and '-', with a letter or digit at both ends";
constexpr std::string_view kDecimalUnits = "kMGTPE";
constexpr std::string_view kBinaryUnits = "KMGTPE";
constexpr const char* kBytesPattern = R"(^[0-9]{1,18}(\.[0-9]{1,9})?([KMGTPE]i|[kMGTPE])?$)";

}  // namespace

constexpr TextRule kJobName = {"^[a-z]([-a-z0-9]*[a-z0-9])?$",
                               {1, 50},
                               kIsDns1035Label,
                               "at most 50 lower-case letters, digits and '-', with a letter first and no "
                               "'-' last, for pods are named after it"};
constexpr TextRule kTableName = {"^[A-Za-z0-9_][A-Za-z0-9_./:-]*$",
                                 {1, 128},
                                 kIsTableName,
                                 "1 to 128 letters, digits and '_', then also '.', '/', ':' and '-'"};
constexpr TextRule kFamilyName = {
    "^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$", {0, 63}, is_optional_label_value, kLabelForm};
constexpr TextRule kRequiredFamilyName = {
    "^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", {1, 63}, kIsLabelValue, kLabelForm};
constexpr TextRule kGpuModelName = kFamilyName;
constexpr TextRule kRequiredGpuModelName = kRequiredFamilyName;
constexpr TextRule kProductLabel = kRequiredFamilyName;
constexpr TextRule kNodeLabel = {
    "^([A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?=)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
    {1, 381},
    is_node_label,
    "a value of nvidia.com/gpu.product, or another label as key=value"};
constexpr TextRule kComputeCapability = {
    R"(^[0-9]{1,2}\.[0-9]$)", {3, 4}, is_version<2, 1>, "a compute capability, such as 8.0"};
constexpr TextRule kCudaVersion = {
    R"(^[0-9]{1,2}\.[0-9]{1,2}$)", {3, 5}, is_version<2, 2>, "a version of CUDA, such as 12.8"};
constexpr TextRule kTorchVersion = {
    R"(^([0-9]{1,2}\.[0-9]{1,2})?$)", {0, 5}, is_optional_version, "a version of PyTorch, such as 2.6"};
constexpr TextRule kBitsandbytesVersion = {
    R"(^([0-9]{1,2}\.[0-9]{1,2})?$)", {0, 5}, is_optional_version, "a version of bitsandbytes, such as 0.42"};
constexpr TextRule kThroughput = {R"(^([0-9]{1,9}(\.[0-9]{1,6})?%?)?$)",
                                  {0, 20},
                                  is_optional_throughput,
                                  "samples a second, such as 1500, or a percentage, such as 90%"};
constexpr TextRule kDriverVersion = {
    "^[0-9][0-9.]*$", {1, 32}, kIsDriverVersion, "a version of the driver, such as 535.104.12"};
constexpr TextRule kConfigMapName = {"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
                                     {1, 253},
                                     kIsObjectName,
                                     "the name of a ConfigMap: lower-case letters, digits, '-' and '.'"};
constexpr TextRule kConfigMapKey = {"^[-._a-zA-Z0-9]+$",
                                    {1, 253},
                                    kIsConfigMapKey,
                                    "a key of a ConfigMap: letters, digits, '-', '_' and '.'"};
constexpr TextRule kControllerName = {
    R"(^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/[-A-Za-z0-9/._~%!$&'()*+,;=:@]+)?$)",
    {0, 63},
    is_controller_name,
    "a domain, '/' and a path, such as kueue.x-k8s.io/multikueue"};
constexpr TextRule kContainerName = {"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
                                     {1, 63},
                                     kIsDns1123Label,
                                     "at most 63 lower-case letters, digits and '-', with no '-' at an end"};
constexpr TextRule kPercentage = {
    R"(^[0-9]{1,2}(\.[0-9]{1,6})?%$)", {0, 10}, is_percentage, "a percentage below 100%, like 5%"};

constexpr TextRule kModuleName = {"^[A-Za-z0-9_*][A-Za-z0-9_.*-]*$",
                                  {1, 128},
                                  kIsModuleName,
                                  "1 to 128 letters, digits, '_' and '*', then also '.' and '-'"};
constexpr TextRule kModelConfig = {R"(^[ \t\r\n]*\{)",
                                   {2, 65536},
                                   begins_a_json_object,
                                   "the text of a config.json, a JSON object of at most 65536 bytes"};
constexpr DecimalRule kPoolingFactor = {
    R"(^[0-9]{1,6}(\.[0-9]{1,9})?$)",
    6,
    9,
    {0, 999'999},
    0,
    1e6,
    "a number from 0 to 999999, an integer or a decimal in quotes like \"12.5\""};
constexpr DecimalRule kLookupFrequency = {
    R"(^(0(\.[0-9]{1,9})?|1(\.0{1,9})?)$)",
    1,
    9,
    {0, 1},
    0,
    1,
    "a number from 0 to 1, an integer or a decimal in quotes like \"0.76\""};
constexpr DecimalRule kPeakCorrection = {
    R"(^(0\.[5-9][0-9]{0,5}|[1-3](\.[0-9]{1,6})?|4(\.0{1,6})?)$)",
    1,
    6,
    {1, 4},
    0.5,
    4,
    "a number from 0.5 to 4, an integer or a decimal in quotes like \"1.08\""};
constexpr DecimalRule kCostPerHour = {
    R"(^[0-9]{1,9}(\.[0-9]{1,6})?$)",
    9,
    6,
    {0, 999'999'999},
    0,
    1e9,
    "a number below 1000000000, an integer or a decimal in quotes like \"2.95\""};

constexpr DecimalRule kBumpUpRatio = {
    R"(^([1-9](\.[0-9]{1,6})?|10(\.0{1,6})?)$)",
    2,
    6,
    {1, 10},
    1,
    10,
    "a number from 1 to 10, an integer or a decimal in quotes like \"1.2\""};

constexpr QuantityRule kPositiveBytes = {kBytesPattern, 32, 1};
constexpr QuantityRule kAnyBytes = {kBytesPattern, 32, 0};

bool obeys(const TextRule& rule, std::string_view text) {
  const auto length = static_cast<std::int64_t>(text.size());
  return length >= rule.length.least && length <= rule.length.most && rule.matches(text);
}

bool obeys(const QuantityRule& rule, std::string_view text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view unit = text.substr(end);
  const bool known = unit.empty() || (unit.size() == 1 && kDecimalUnits.find(unit[0]) != unit.npos) ||
                     (unit.size() == 2 && kBinaryUnits.find(unit[0]) != unit.npos && unit[1] == 'i');
  return text.size() <= rule.longest && known && is_decimal(text.substr(0, end), 18, 9);
}

std::optional<double> parse_decimal(const DecimalRule& rule, std::string_view text) {
  // Patterns that exclude 0 also exclude leading zeros.
  const bool has_leading_zero = text.size() > 1 && text[0] == '0' && text[1] != '.';
  if (!is_decimal(text, rule.whole_digits, rule.fraction_digits) || (has_leading_zero && rule.least > 0)) {
    return std::nullopt;
  }
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value >= rule.least && value <= rule.most ? std::optional(value) : std::nullopt;
}

}  // namespace plimsoll::crds
