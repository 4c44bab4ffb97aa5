// Waits for a state that another thread or process brings about.
//
//   ASSERT_TRUE(eventually("the server stops", [&] { return server.draining(); }));
//   EXPECT_TRUE(eventually("all GPUs are counted", [&] { return gpus(); }, 8)) << log();
//   EXPECT_TRUE(eventually("an event is written", [&] { return events(); }, Not(IsEmpty())));
//
// `look` is called on this thread until what it returns equals or matches `expected`, for at most `patience`; a failure
// says what was waited for, and the value that was seen last. The state must last: one that comes and goes may not be
// seen.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>

#include "tests/testing/patience.h"

namespace plimsoll::testing {

template <class Look, class Expected = bool>
::testing::AssertionResult eventually(std::string_view what, const Look& look, Expected expected = true,
                                      std::chrono::nanoseconds patience = kPatience) {
  using Value = std::decay_t<decltype(look())>;
  constexpr std::chrono::milliseconds kLongestPause{100};  // looking at a cluster starts a process
  const auto matcher = ::testing::SafeMatcherCast<const Value&>(expected);
  const auto limit = std::chrono::steady_clock::now() + patience;
  for (std::chrono::milliseconds pause{1};; pause = std::min(2 * pause, kLongestPause)) {
    const bool is_last = std::chrono::steady_clock::now() >= limit;
    const Value seen = look();
    if (matcher.Matches(seen)) {
      return ::testing::AssertionSuccess();
    }
    if (is_last) {
      return ::testing::AssertionFailure()
             << "waited in vain for: " << what
             << "\n  expected: " << ::testing::DescribeMatcher<const Value&>(matcher)
             << "\n  last seen: " << ::testing::PrintToString(seen) << "\n";
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace plimsoll::testing
