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
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::nanoseconds kLongestPause = std::chrono::milliseconds(100);
  // Looking at a cluster starts a process: what is waited for has most of the processor.
  constexpr int kPauseOfLooks = 3;
  constexpr std::chrono::nanoseconds kLongestPauseOfLooks = std::chrono::seconds(1);
  const auto matcher = ::testing::SafeMatcherCast<const Value&>(expected);
  const auto limit = Clock::now() + patience;
  for (std::chrono::nanoseconds pause = std::chrono::milliseconds(1);;
       pause = std::min(2 * pause, kLongestPause)) {
    const auto began = Clock::now();
    const bool is_last = began >= limit;
    const Value seen = look();
    const std::chrono::nanoseconds looked = Clock::now() - began;
    if (matcher.Matches(seen)) {
      return ::testing::AssertionSuccess();
    }
    if (is_last) {
      return ::testing::AssertionFailure()
             << "waited in vain for: " << what
             << "\n  expected: " << ::testing::DescribeMatcher<const Value&>(matcher)
             << "\n  last seen: " << ::testing::PrintToString(seen) << "\n";
    }
    std::this_thread::sleep_for(std::max(pause, std::min(kPauseOfLooks * looked, kLongestPauseOfLooks)));
  }
}

}  // namespace plimsoll::testing
