// What seeded simulations share: dice that fall the same way for the same seed, and the run over many seeds,
// which ends at the first that fails and says which it was.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/log.h"
#include "tests/testing/random_cases.h"

namespace plimsoll::testing {

inline constexpr unsigned kSeeds = random_cases(10'000);

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  int roll(int sides) { return static_cast<int>(random_() % static_cast<unsigned>(sides)); }
  std::mt19937& generator() { return random_; }

 private:
  std::mt19937 random_;
};

// Without the log, which would be most of the work.
inline void for_each_seed(void (*run)(unsigned seed)) {
  configure_log(LogLevel::kError, LogFormat::kText);
  for (unsigned seed = 0; seed < kSeeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    run(seed);
  }
  configure_log(LogLevel::kInfo, LogFormat::kText);
}

}  // namespace plimsoll::testing
