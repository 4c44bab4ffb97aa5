#include "base/quantity.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace plimsoll {
namespace {

constexpr double kLimit = 9223372036854775808.0;  // 2^63

constexpr std::array<std::pair<std::string_view, double>, 16> kSuffixes = {{
    {"", 1.0},
    {"n", 1e-9},
    {"u", 1e-6},
    {"m", 1e-3},
    {"k", 1e3},
    {"M", 1e6},
    {"G", 1e9},
    {"T", 1e12},
    {"P", 1e15},
    {"E", 1e18},
    {"Ki", 1024.0},
    {"Mi", 1048576.0},
    {"Gi", 1073741824.0},
    {"Ti", 1099511627776.0},
    {"Pi", 1125899906842624.0},
    {"Ei", 1152921504606846976.0},
}};

Error not_a_quantity(std::string_view text) {
  return invalid("not a Kubernetes quantity; write a number with an optional suffix, like 80Gi, 500M or 0.5",
                 std::string(text.substr(0, 64)));
}

}  // namespace

Result<double> parse_quantity(std::string_view text) {
  std::string_view digits = text;
  bool negative = false;
  if (!digits.empty() && (digits.front() == '+' || digits.front() == '-')) {
    negative = digits.front() == '-';
    digits.remove_prefix(1);
  }
  if (digits.empty() || !(digits.front() == '.' || (digits.front() >= '0' && digits.front() <= '9'))) {
    return not_a_quantity(text);
  }
  // A trailing E alone is the exa suffix and not an exponent: take the mantissa first, then decide.
  double value = 0;
  const char* end = digits.data() + digits.size();
  auto [stop, failure] = std::from_chars(digits.data(), end, value, std::chars_format::fixed);
  if (failure != std::errc()) {
    return not_a_quantity(text);
  }
  std::string_view suffix(stop, static_cast<std::size_t>(end - stop));
  if (suffix.size() > 1 && (suffix.front() == 'e' || suffix.front() == 'E')) {
    const bool plus = suffix[1] == '+';
    int exponent = 0;
    auto [rest, broken] = std::from_chars(suffix.data() + (plus ? 2 : 1), end, exponent);
    if (broken == std::errc() && rest == end) {
      value *= std::pow(10.0, exponent);
      suffix = {};
    }
  }
  for (const auto& [name, factor] : kSuffixes) {
    if (suffix == name) {
      value *= factor;
      if (!(value < kLimit)) {
        return invalid("quantity is larger than 2^63", std::string(text.substr(0, 64)));
      }
      return negative ? -value : value;
    }
  }
  return not_a_quantity(text);
}

Result<Bytes> parse_bytes(std::string_view text) {
  Result<double> value = parse_quantity(text);
  if (!value) {
    return value.error();
  }
  if (*value < 0) {
    return invalid("an amount of memory cannot be negative", std::string(text.substr(0, 64)));
  }
  return Bytes::ceil(*value);
}

std::string format_bytes(Bytes bytes) {
  static constexpr std::array<std::string_view, 7> kBinary = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
  std::int64_t count = bytes.count;
  std::size_t unit = 0;
  while (count != 0 && count % 1024 == 0 && unit + 1 < kBinary.size()) {
    count /= 1024;
    ++unit;
  }
  return std::to_string(count) + std::string(kBinary[unit]);
}

Result<double> parse_percentage(std::string_view text) {
  if (text.empty() || text.back() != '%') {
    return invalid("not a percentage; write one like 5%", std::string(text.substr(0, 64)));
  }
  Result<double> value = parse_quantity(text.substr(0, text.size() - 1));
  if (!value || *value < 0 || *value > 100) {
    return invalid("not a percentage from 0% to 100%", std::string(text.substr(0, 64)));
  }
  return *value / 100;
}

}  // namespace plimsoll
