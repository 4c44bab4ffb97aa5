// Bytes: an amount of memory that cannot be mistaken for a count of MiB, and arithmetic that cannot wrap.
//
//   Bytes budget = 80_GiB - reserved;
//   log(to_string(budget));                // "71.3 GiB"
//
// Sums, differences and products saturate at the ends of 64 bits instead of overflowing, so that an absurd
// input (rows in the trillions) ends as "does not fit" and never as a small number. Plain value; any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <string>

namespace plimsoll {

struct Bytes {
  std::int64_t count = 0;

  auto operator<=>(const Bytes&) const = default;

  static constexpr Bytes max() { return Bytes{std::numeric_limits<std::int64_t>::max()}; }
  static constexpr Bytes from_mib(std::int64_t mib) { return Bytes{mib} * (std::int64_t{1} << 20); }
  // Rounds up; for figures that come out of real arithmetic (a share of a table). Saturates.
  static Bytes ceil(double bytes);

  friend constexpr Bytes operator+(Bytes a, Bytes b) {
    std::int64_t sum = 0;
    if (__builtin_add_overflow(a.count, b.count, &sum)) {
      return b.count > 0 ? max() : Bytes{std::numeric_limits<std::int64_t>::min()};
    }
    return Bytes{sum};
  }
  friend constexpr Bytes operator-(Bytes a, Bytes b) {
    std::int64_t difference = 0;
    if (__builtin_sub_overflow(a.count, b.count, &difference)) {
      return b.count < 0 ? max() : Bytes{std::numeric_limits<std::int64_t>::min()};
    }
    return Bytes{difference};
  }
  friend constexpr Bytes operator*(Bytes a, std::int64_t factor) {
    std::int64_t product = 0;
    if (__builtin_mul_overflow(a.count, factor, &product)) {
      return (a.count < 0) == (factor < 0) ? max() : Bytes{std::numeric_limits<std::int64_t>::min()};
    }
    return Bytes{product};
  }
  friend constexpr Bytes operator*(std::int64_t factor, Bytes a) { return a * factor; }
  constexpr Bytes& operator+=(Bytes other) { return *this = *this + other; }
  constexpr Bytes& operator-=(Bytes other) { return *this = *this - other; }
};

constexpr Bytes operator""_B(unsigned long long n) {
  return Bytes{static_cast<std::int64_t>(n)};
}
constexpr Bytes operator""_KiB(unsigned long long n) {
  return Bytes{static_cast<std::int64_t>(n)} * (1LL << 10);
}
constexpr Bytes operator""_MiB(unsigned long long n) {
  return Bytes{static_cast<std::int64_t>(n)} * (1LL << 20);
}
constexpr Bytes operator""_GiB(unsigned long long n) {
  return Bytes{static_cast<std::int64_t>(n)} * (1LL << 30);
}

// Three significant digits and a binary unit: "512 B", "1.50 KiB", "71.3 GiB", "4.67 TiB".
std::string to_string(Bytes bytes);

}  // namespace plimsoll
