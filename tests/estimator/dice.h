// Random choices of a test, from a seed that it prints. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>

namespace plimsoll::estimator::testing {

class Dice {
 public:
  explicit Dice(std::uint32_t seed) : random_(seed) {}
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n));
  }
  bool coin() { return below(2) == 0; }
  std::int64_t one_of(std::initializer_list<std::int64_t> values) {
    return values.begin()[below(static_cast<std::int64_t>(values.size()))];
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace plimsoll::estimator::testing
