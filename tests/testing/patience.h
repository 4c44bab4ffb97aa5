// How long a test waits for what must happen. Long enough for a busy machine: it passes only where the product is
// broken, so that nothing is gained from a shorter limit. Pure.
#pragma once

#include <chrono>
#include <string>

namespace plimsoll::testing {

// How many times longer code takes under a sanitizer.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr int kSlowdown = 5;
#else
constexpr int kSlowdown = 1;
#endif

// Below the limit of a test (cmake/library.cmake), so that the test can say what did not happen.
constexpr std::chrono::seconds kPatience{60 * kSlowdown};

// The argument with which kubectl waits as long: "--timeout=60s".
inline std::string kubectl_timeout() {
  return "--timeout=" + std::to_string(kPatience.count()) + "s";
}

}  // namespace plimsoll::testing
