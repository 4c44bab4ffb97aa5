#include "base/clock.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(Clock, WritesTimesAsKubernetesDoes) {
  EXPECT_EQ(format_time(std::chrono::system_clock::from_time_t(0)), "1970-01-01T00:00:00Z");
  EXPECT_EQ(
      format_time(std::chrono::system_clock::from_time_t(1'795'249'800) + std::chrono::milliseconds(999)),
      "2026-11-21T08:30:00Z");
}

TEST(Clock, WritesMicrosecondsForLeases) {
  const auto time = std::chrono::system_clock::from_time_t(1'795'249'800);
  EXPECT_EQ(format_micro_time(time), "2026-11-21T08:30:00.000000Z");
  EXPECT_EQ(format_micro_time(time + std::chrono::microseconds(999'042)), "2026-11-21T08:30:00.999042Z");
}

TEST(Clock, WritesMillisecondsForLogs) {
  const auto time = std::chrono::system_clock::from_time_t(1'795'249'800);
  EXPECT_EQ(format_milli_time(time), "2026-11-21T08:30:00.000Z");
  EXPECT_EQ(format_milli_time(time + std::chrono::microseconds(999'942)), "2026-11-21T08:30:00.999Z");
  EXPECT_EQ(format_milli_time(std::chrono::system_clock::from_time_t(0) - std::chrono::milliseconds(1)),
            "1969-12-31T23:59:59.999Z");
}

TEST(Clock, ReadsWhatItWrites) {
  const auto time = std::chrono::system_clock::from_time_t(1'795'249'800);
  EXPECT_EQ(parse_time(format_time(time)), time);
  EXPECT_EQ(parse_time(format_micro_time(time + std::chrono::microseconds(999'042))), time);
  for (const char* wrong : {"", "soon", "2026-11-21", "2026-11-21T08:30:00", "2026-11-21T08:30:00Zulu",
                            "2026-13-21T08:30:00Z", "2026-11-21T08:30:00+01:00"}) {
    EXPECT_EQ(parse_time(wrong), std::nullopt) << wrong;
  }
}

// These overflowed the clock's nanoseconds.
TEST(Clock, YearsThatItDoesNotHoldAreNoTimes) {
  EXPECT_EQ(parse_time("2999-12-31T23:59:59Z"), std::nullopt);
  EXPECT_EQ(parse_time("9999-12-31T23:59:59Z"), std::nullopt);
  EXPECT_EQ(parse_time("0001-01-01T00:00:00Z"), std::nullopt);
  EXPECT_TRUE(parse_time("2262-04-11T23:47:16Z"));
  EXPECT_TRUE(parse_time("1700-01-01T00:00:00Z"));
}

TEST(Clock, SystemClockRuns) {
  const auto before = system_clock().steady_now();
  EXPECT_GE(system_clock().steady_now(), before);
  EXPECT_GT(system_clock().wall_now(), std::chrono::system_clock::from_time_t(1'600'000'000));
}

}  // namespace
}  // namespace plimsoll
