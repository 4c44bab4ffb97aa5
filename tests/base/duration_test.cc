#include "base/duration.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

using namespace std::chrono_literals;

TEST(Duration, ReadsWhatGoWrites) {
  EXPECT_EQ(parse_duration("10s"), 10s);
  EXPECT_EQ(parse_duration("1m30s"), 90s);
  EXPECT_EQ(parse_duration("1.5s"), 1500ms);
  EXPECT_EQ(parse_duration("250ms"), 250ms);
  EXPECT_EQ(parse_duration("0s"), 0s);
  EXPECT_EQ(parse_duration("24h"), 24h);
}

TEST(Duration, TheLimitIsTheCallers) {
  EXPECT_EQ(parse_duration("43800h", 100'000h), 43'800h);
  EXPECT_EQ(parse_duration("100001h", 100'000h), std::nullopt);
  EXPECT_EQ(parse_duration("2s", 1s), std::nullopt);
}

TEST(Duration, RefusesTheRest) {
  for (const char* text : {"", "10", "-1s", "s", "1d", "1s ", " 1s", "1.s.", "24h1s", "1e9h", "nans"}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace plimsoll
