#include "crds/field_rules.h"

#include <algorithm>

namespace plimsoll::crds {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_lower(char c) {
  return c >= 'a' && c <= 'z';
}
bool is_alphanumeric(char c) {
  return is_digit(c) || is_lower(c) || (c >= 'A' && c <= 'Z');
}
bool is_lower_alphanumeric(char c) {
  return is_digit(c) || is_lower(c);
}

template <class Predicate>
bool all(std::string_view text, Predicate holds) {
  return std::all_of(text.begin(), text.end(), holds);
}

// [A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?
bool is_label_value(std::string_view text) {
  return !text.empty() && is_alphanumeric(text.front()) && is_alphanumeric(text.back()) &&
         all(text, [](char c) { return is_alphanumeric(c) || c == '.' || c == '_' || c == '-'; });
}

// A label's value, after the label's key and '=' where that is not nvidia.com/gpu.product.
bool is_node_label(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos) {
    return is_label_value(text);
  }
  const std::string_view key = text.substr(0, equals);
  return is_label_value(text.substr(equals + 1)) && !key.empty() && is_alphanumeric(key.front()) &&
         is_alphanumeric(key.back()) &&
         all(key, [](char c) { return is_alphanumeric(c) || c == '.' || c == '_' || c == '-' || c == '/'; });
}

bool is_optional_label_value(std::string_view text) {
  return text.empty() || is_label_value(text);
}

// [a-z]([-a-z0-9]*[a-z0-9])?
bool is_dns_1035_label(std::string_view text) {
  return !text.empty() && is_lower(text.front()) && is_lower_alphanumeric(text.back()) &&
         all(text, [](char c) { return is_lower_alphanumeric(c) || c == '-'; });
}

// [a-z0-9]([-a-z0-9]*[a-z0-9])?
bool is_dns_1123_label(std::string_view text) {
  return !text.empty() && is_lower_alphanumeric(text.front()) && is_lower_alphanumeric(text.back()) &&
         all(text, [](char c) { return is_lower_alphanumeric(c) || c == '-'; });
}

// [a-z0-9]([-a-z0-9.]*[a-z0-9])?
bool is_object_name(std::string_view text) {
  return !text.empty() && is_lower_alphanumeric(text.front()) && is_lower_alphanumeric(text.back()) &&
         all(text, [](char c) { return is_lower_alphanumeric(c) || c == '-' || c == '.'; });
}

// [-._a-zA-Z0-9]+
bool is_config_map_key(std::string_view text) {
  return !text.empty() &&
         all(text, [](char c) { return is_alphanumeric(c) || c == '-' || c == '.' || c == '_'; });
}

// ([a-z0-9]([-a-z0-9.]*[a-z0-9])?/[-A-Za-z0-9/._~%!$&'()*+,;=:@]+)?
bool is_controller_name(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == text.npos) {
    return text.empty();
  }
  const std::string_view path = text.substr(slash + 1);
  constexpr std::string_view kOthers = "-/._~%!$&'()*+,;=:@";  // of a path, RFC 3986
  return is_object_name(text.substr(0, slash)) && !path.empty() &&
         all(path, [&](char c) { return is_alphanumeric(c) || kOthers.find(c) != kOthers.npos; });
}

// [A-Za-z0-9_][A-Za-z0-9_./:-]*
bool is_table_name(std::string_view text) {
  const auto word = [](char c) { return is_alphanumeric(c) || c == '_'; };
  return !text.empty() && word(text.front()) &&
         all(text, [&](char c) { return word(c) || c == '.' || c == '/' || c == ':' || c == '-'; });
}

// [0-9]{1,whole}(\.[0-9]{1,fraction})?
bool is_decimal(std::string_view text, std::size_t whole, std::size_t fraction) {
  const std::size_t point = std::min(text.find('.'), text.size());
  const std::string_view before = text.substr(0, point);
  if (before.empty() || before.size() > whole || !all(before, is_digit)) {
    return false;
  }
  if (point == text.size()) {
    return true;
  }
  const std::string_view after = text.substr(point + 1);
  return !after.empty() && after.size() <= fraction && all(after, is_digit);
}

bool is_zero(std::string_view digits) {
  return all(digits, [](char c) { return c == '0'; });
}

bool is_pooling_factor(std::string_view text) {
  return is_decimal(text, 6, 9);
}

// 0 and a fraction, or 1 and no fraction but zeros
bool is_share(std::string_view text) {
  return is_decimal(text, 1, 9) &&
         (text[0] == '0' || (text[0] == '1' && is_zero(text.substr(std::min<std::size_t>(2, text.size())))));
}

// 0.5 to 4
bool is_correction(std::string_view text) {
  if (!is_decimal(text, 1, 6)) {
    return false;
  }
  switch (text[0]) {
    case '0': return text.size() > 2 && text[2] >= '5';
    case '1':
    case '2':
    case '3': return true;
    case '4': return is_zero(text.substr(std::min<std::size_t>(2, text.size())));
    default: return false;
  }
}

bool is_price(std::string_view text) {
  return is_decimal(text, 9, 6);
}

// 1 to 10
bool is_bump_up_ratio(std::string_view text) {
  return (is_decimal(text, 1, 6) && text[0] != '0') ||
         (text.starts_with("10") && is_decimal(text, 2, 6) &&
          is_zero(text.substr(std::min<std::size_t>(3, text.size()))));
}

bool is_bytes(std::string_view text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view suffix = text.substr(end);
  const auto among = [&](std::string_view units) {
    return !suffix.empty() && units.find(suffix[0]) != units.npos;
  };
  const bool known = suffix.empty() || (suffix.size() == 1 && among("kMGTPE")) ||
                     (suffix.size() == 2 && suffix[1] == 'i' && among("KMGTPE"));
  return known && is_decimal(text.substr(0, end), 18, 9);
}

bool is_percentage(std::string_view text) {
  return text.ends_with('%') && is_decimal(text.substr(0, text.size() - 1), 2, 6);
}

// [A-Za-z0-9_*][A-Za-z0-9_.*-]*
bool is_module_name(std::string_view text) {
  const auto word = [](char c) { return is_alphanumeric(c) || c == '_' || c == '*'; };
  return !text.empty() && word(text.front()) &&
         all(text, [&](char c) { return word(c) || c == '.' || c == '-'; });
}

bool begins_a_json_object(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{';
}

constexpr const char* kLabelForm =
    "at most 63 letters, digits, '.', '_' and '-', with a letter or digit at both ends";
constexpr const char* kBytesPattern = R"(^[0-9]{1,18}(\.[0-9]{1,9})?([KMGTPE]i|[kMGTPE])?$)";

}  // namespace

constexpr TextRule kJobName = {"^[a-z]([-a-z0-9]*[a-z0-9])?$",
                               {1, 50},
                               is_dns_1035_label,
                               "at most 50 lower-case letters, digits and '-', with a letter first and no "
                               "'-' last, for pods are named after it"};
constexpr TextRule kTableName = {"^[A-Za-z0-9_][A-Za-z0-9_./:-]*$",
                                 {1, 128},
                                 is_table_name,
                                 "1 to 128 letters, digits and '_', then also '.', '/', ':' and '-'"};
constexpr TextRule kFamilyName = {
    "^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$", {0, 63}, is_optional_label_value, kLabelForm};
constexpr TextRule kRequiredFamilyName = {
    "^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", {1, 63}, is_label_value, kLabelForm};
constexpr TextRule kGpuModelName = kFamilyName;
constexpr TextRule kRequiredGpuModelName = kRequiredFamilyName;
constexpr TextRule kProductLabel = kRequiredFamilyName;
constexpr TextRule kNodeLabel = {
    "^([A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?=)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$",
    {1, 381},
    is_node_label,
    "a value of nvidia.com/gpu.product, or another label as key=value"};
constexpr TextRule kConfigMapName = {"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
                                     {1, 253},
                                     is_object_name,
                                     "the name of a ConfigMap: lower-case letters, digits, '-' and '.'"};
constexpr TextRule kConfigMapKey = {"^[-._a-zA-Z0-9]+$",
                                    {1, 253},
                                    is_config_map_key,
                                    "a key of a ConfigMap: letters, digits, '-', '_' and '.'"};
constexpr TextRule kControllerName = {
    R"(^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/[-A-Za-z0-9/._~%!$&'()*+,;=:@]+)?$)",
    {0, 63},
    is_controller_name,
    "a domain, '/' and a path, such as kueue.x-k8s.io/multikueue"};
constexpr TextRule kContainerName = {"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
                                     {1, 63},
                                     is_dns_1123_label,
                                     "at most 63 lower-case letters, digits and '-', with no '-' at an end"};
constexpr TextRule kPercentage = {
    R"(^[0-9]{1,2}(\.[0-9]{1,6})?%$)", {0, 10}, is_percentage, "a percentage below 100%, like 5%"};

constexpr TextRule kModuleName = {"^[A-Za-z0-9_*][A-Za-z0-9_.*-]*$",
                                  {1, 128},
                                  is_module_name,
                                  "1 to 128 letters, digits, '_' and '*', then also '.' and '-'"};
constexpr TextRule kModelConfig = {R"(^[ \t\r\n]*\{)",
                                   {2, 65536},
                                   begins_a_json_object,
                                   "the text of a config.json, a JSON object of at most 65536 bytes"};
constexpr DecimalRule kPoolingFactor = {
    R"(^[0-9]{1,6}(\.[0-9]{1,9})?$)",
    16,
    {0, 999'999},
    0,
    1e6,
    is_pooling_factor,
    "a number from 0 to 999999, an integer or a decimal in quotes like \"12.5\""};
constexpr DecimalRule kLookupFrequency = {
    R"(^(0(\.[0-9]{1,9})?|1(\.0{1,9})?)$)",
    11,
    {0, 1},
    0,
    1,
    is_share,
    "a number from 0 to 1, an integer or a decimal in quotes like \"0.76\""};
constexpr DecimalRule kPeakCorrection = {
    R"(^(0\.[5-9][0-9]{0,5}|[1-3](\.[0-9]{1,6})?|4(\.0{1,6})?)$)",
    8,
    {1, 4},
    0.5,
    4,
    is_correction,
    "a number from 0.5 to 4, an integer or a decimal in quotes like \"1.08\""};
constexpr DecimalRule kCostPerHour = {
    R"(^[0-9]{1,9}(\.[0-9]{1,6})?$)",
    16,
    {0, 999'999'999},
    0,
    1e9,
    is_price,
    "a number below 1000000000, an integer or a decimal in quotes like \"2.95\""};

constexpr DecimalRule kBumpUpRatio = {
    R"(^([1-9](\.[0-9]{1,6})?|10(\.0{1,6})?)$)",
    9,
    {1, 10},
    1,
    10,
    is_bump_up_ratio,
    "a number from 1 to 10, an integer or a decimal in quotes like \"1.2\""};

constexpr QuantityRule kPositiveBytes = {kBytesPattern, 32, 1, is_bytes};
constexpr QuantityRule kAnyBytes = {kBytesPattern, 32, 0, is_bytes};

bool obeys(const TextRule& rule, std::string_view text) {
  const auto length = static_cast<std::int64_t>(text.size());
  return length >= rule.length.least && length <= rule.length.most && rule.matches(text);
}

}  // namespace plimsoll::crds
