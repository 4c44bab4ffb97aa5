#include "base/number.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace plimsoll {
namespace {

TEST(ParseNumber, TakesWholeTextsOnly) {
  EXPECT_EQ(parse_number<std::int64_t>("-42"), -42);
  EXPECT_EQ(parse_number<double>("1.5"), 1.5);
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "9223372036854775808", "1.5"}) {
    EXPECT_FALSE(parse_number<std::int64_t>(text)) << text;
  }
  EXPECT_FALSE(parse_number<std::uint64_t>("-1"));
}

}  // namespace
}  // namespace plimsoll
