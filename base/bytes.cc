#include "base/bytes.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace plimsoll {

Bytes Bytes::ceil(double bytes) {
  // 2^63 is the first double that does not fit; NaN must not fit either.
  if (!(bytes < 9223372036854775808.0)) {
    return max();
  }
  if (bytes < -9223372036854775808.0) {
    return Bytes{std::numeric_limits<std::int64_t>::min()};
  }
  return Bytes{static_cast<std::int64_t>(std::ceil(bytes))};
}

std::string to_string(Bytes bytes) {
  static constexpr std::array<const char*, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes.count);
  std::size_t unit = 0;
  // From 1023.5 on it would be written as 1024 of its unit.
  while (std::abs(value) >= (unit == 0 ? 1024 : 1023.5) && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  const double magnitude = std::abs(value);
  const int decimals = unit == 0 ? 0 : magnitude < 9.995 ? 2 : magnitude < 99.95 ? 1 : 0;
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f %s", decimals, value, kUnits[unit]);
  return text.data();
}

}  // namespace plimsoll
