// The seed of random tests. It is the same in every run, so that a change is never refused for what a new seed finds elsewhere.
// PLIMSOLL_RANDOM_SEED=random (scripts/nightly) draws one for the process, PLIMSOLL_RANDOM_SEED=NUMBER repeats it; both are
// printed. A seed that found something becomes a regression test of its own. Any thread.
//
//   std::mt19937_64 random(plimsoll::testing::random_seed());
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <stdexcept>
#include <string>

namespace plimsoll::testing {

// Throws std::invalid_argument when `value` is neither "random" nor a number below 2^32. Null: the fixed seed.
inline std::uint32_t random_seed_of(const char* value) {
  constexpr std::uint32_t kFixed = 20'231'030;  // any number; this one is the first day of SoCC 2023
  if (value == nullptr) {
    return kFixed;
  }
  const std::string text = value;
  if (text == "random") {
    return std::random_device{}();
  }
  std::uint32_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw std::invalid_argument("PLIMSOLL_RANDOM_SEED must be \"random\" or a number below 2^32, and is \"" +
                                text + "\"");
  }
  return seed;
}

inline std::uint32_t random_seed() {
  static const std::uint32_t seed = [] {
    const char* value = std::getenv("PLIMSOLL_RANDOM_SEED");
    const std::uint32_t chosen = random_seed_of(value);
    if (value != nullptr) {
      std::cout << "PLIMSOLL_RANDOM_SEED=" << chosen << std::endl;
    }
    return chosen;
  }();
  return seed;
}

}  // namespace plimsoll::testing
