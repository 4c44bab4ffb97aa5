// How many cases a random test runs. Pure.
//
//   for (int i = 0; i < random_cases(2'500); ++i) { ... }
#pragma once

namespace plimsoll::testing {

// A tenth under a sanitizer, which makes each ten times as long.
constexpr int random_cases(int all) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return all / 10;
#else
  return all;
#endif
}

}  // namespace plimsoll::testing
