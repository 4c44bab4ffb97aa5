#include "base/quantity.h"

#include <algorithm>
#include <array>
#include <boost/multiprecision/cpp_int.hpp>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>

namespace plimsoll {
namespace {

constexpr double kLimit = 9223372036854775808.0;  // 2^63
constexpr std::size_t kMaxCharacters = 128;       // far more than a quantity needs
constexpr int kFarthestExponent = 400;            // beyond the range of a double in both directions

// A power of 1000 (then ten_exponent is set) or of 1024.
struct Suffix {
  std::string_view name;
  int ten_exponent;
  int two_exponent;
};

constexpr std::array<Suffix, 16> kSuffixes = {{
    {"", 0, 0},
    {"n", -9, 0},
    {"u", -6, 0},
    {"m", -3, 0},
    {"k", 3, 0},
    {"M", 6, 0},
    {"G", 9, 0},
    {"T", 12, 0},
    {"P", 15, 0},
    {"E", 18, 0},
    {"Ki", 0, 10},
    {"Mi", 0, 20},
    {"Gi", 0, 30},
    {"Ti", 0, 40},
    {"Pi", 0, 50},
    {"Ei", 0, 60},
}};

// digits * 10^ten_exponent * 2^two_exponent, exactly.
struct Amount {
  bool negative = false;
  std::string digits;  // at least one
  int ten_exponent = 0;
  int two_exponent = 0;
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// "e3", "E-3", "e+3"; nothing for what is not an exponent.
std::optional<int> exponent_of(std::string_view text) {
  if (text.size() < 2 || (text.front() != 'e' && text.front() != 'E')) {
    return std::nullopt;
  }
  text.remove_prefix(1);
  if (text.front() == '+') {
    text.remove_prefix(1);
    if (text.empty() || !is_digit(text.front())) {
      return std::nullopt;
    }
  }
  int exponent = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), exponent);
  if (failure == std::errc::invalid_argument || end != text.data() + text.size()) {
    return std::nullopt;
  }
  if (failure == std::errc::result_out_of_range) {
    return text.front() == '-' ? -kFarthestExponent : kFarthestExponent;
  }
  return std::clamp(exponent, -kFarthestExponent, kFarthestExponent);
}

std::optional<Amount> split(std::string_view text) {
  if (text.size() > kMaxCharacters) {
    return std::nullopt;
  }
  Amount amount;
  if (!text.empty() && (text.front() == '+' || text.front() == '-')) {
    amount.negative = text.front() == '-';
    text.remove_prefix(1);
  }
  bool in_fraction = false;
  while (!text.empty() && (is_digit(text.front()) || (text.front() == '.' && !in_fraction))) {
    if (text.front() == '.') {
      in_fraction = true;
    } else {
      amount.digits += text.front();
      amount.ten_exponent -= in_fraction ? 1 : 0;
    }
    text.remove_prefix(1);
  }
  if (amount.digits.empty()) {
    return std::nullopt;
  }
  // E alone is the exa suffix, E with digits an exponent.
  if (const std::optional<int> exponent = exponent_of(text)) {
    amount.ten_exponent += *exponent;
    return amount;
  }
  const auto known = std::find_if(kSuffixes.begin(), kSuffixes.end(),
                                  [&](const Suffix& suffix) { return suffix.name == text; });
  if (known == kSuffixes.end()) {
    return std::nullopt;
  }
  amount.ten_exponent += known->ten_exponent;
  amount.two_exponent = known->two_exponent;
  return amount;
}

// The next whole number at or above the amount's magnitude; nothing when it exceeds 2^63 - 1.
std::optional<std::int64_t> round_up(const Amount& amount) {
  // Without expression templates, whose temporaries clang's analyzer takes for dangling.
  using Integer =
      boost::multiprecision::number<boost::multiprecision::cpp_int_backend<>, boost::multiprecision::et_off>;
  const std::size_t first = amount.digits.find_first_not_of('0');  // Integer would read octal
  if (first == std::string::npos) {
    return 0;
  }
  Integer whole(amount.digits.substr(first));
  whole <<= amount.two_exponent;
  const Integer scale = pow(Integer(10), static_cast<unsigned>(std::abs(amount.ten_exponent)));
  whole = amount.ten_exponent < 0 ? Integer((whole + scale - 1) / scale) : Integer(whole * scale);
  const bool fits = whole <= std::numeric_limits<std::int64_t>::max();
  return fits ? std::optional(whole.convert_to<std::int64_t>()) : std::nullopt;
}

Error not_a_quantity(std::string_view text) {
  return invalid("not a Kubernetes quantity; write a number with an optional suffix, like 80Gi, 500M or 0.5",
                 std::string(text.substr(0, 64)));
}

Error too_large(std::string_view text) {
  return invalid("quantity is larger than 2^63", std::string(text.substr(0, 64)));
}

}  // namespace

Result<double> parse_quantity(std::string_view text) {
  const std::optional<Amount> amount = split(text);
  if (!amount) {
    return not_a_quantity(text);
  }
  // One conversion of all decimal parts rounds once; the binary suffix is exact.
  const std::string decimal = amount->digits + "e" + std::to_string(amount->ten_exponent);
  double value = 0;
  const std::errc failure = std::from_chars(decimal.data(), decimal.data() + decimal.size(), value).ec;
  if (failure == std::errc::result_out_of_range) {
    // Either far too large, or too small for a double.
    const bool zero = amount->digits.find_first_not_of('0') == std::string::npos || amount->ten_exponent < 0;
    value = zero ? 0 : kLimit;
  }
  value = std::ldexp(value, amount->two_exponent);
  if (!(value < kLimit)) {
    return too_large(text);
  }
  return amount->negative ? -value : value;
}

Result<Bytes> parse_bytes(std::string_view text) {
  const std::optional<Amount> amount = split(text);
  if (!amount) {
    return not_a_quantity(text);
  }
  const std::optional<std::int64_t> count = round_up(*amount);
  if (!count) {
    return too_large(text);
  }
  if (amount->negative && *count != 0) {
    return invalid("an amount of memory cannot be negative", std::string(text.substr(0, 64)));
  }
  return Bytes{*count};
}

std::optional<Bytes> quantity_of(const JsonView& value) {
  if (const std::optional<std::int64_t> count = value.integer()) {
    return *count >= 0 ? std::optional(Bytes{*count}) : std::nullopt;
  }
  const std::optional<std::string_view> text = value.text();
  const Result<Bytes> bytes = text ? parse_bytes(*text) : Result<Bytes>(Error());
  return bytes ? std::optional(*bytes) : std::nullopt;
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
  const std::string_view number = text.substr(0, text.size() - 1);
  const Result<double> value = parse_quantity(number);
  const bool plain = number.find_first_not_of("0123456789.") == std::string_view::npos;
  if (!value || !plain || *value > 100) {
    return invalid("not a percentage from 0% to 100%", std::string(text.substr(0, 64)));
  }
  return *value / 100;
}

}  // namespace plimsoll
