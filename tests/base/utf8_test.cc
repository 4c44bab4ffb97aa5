#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace plimsoll {
namespace {

TEST(Utf8, TakesEveryLengthOfSequence) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("abc"));
  EXPECT_TRUE(is_utf8("\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"));
  EXPECT_TRUE(is_utf8("\xF4\x8F\xBF\xBF"));  // U+10FFFF
}

TEST(Utf8, RefusesWhatIsNone) {
  for (const std::string bytes :
       {"\x80", "\xC3", "\xC0\xAF", "\xC1\x81", "\xE0\x80\xAF", "\xE2\x82", "\xED\xA0\x80",
        "\xF0\x80\x80\xAF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC3\x28"}) {
    EXPECT_FALSE(is_utf8("\"" + bytes + "\"")) << ::testing::PrintToString(bytes);
    EXPECT_FALSE(is_utf8(bytes)) << ::testing::PrintToString(bytes);
  }
}

TEST(Utf8, LengthIsThatOfTheFirstCharacter) {
  EXPECT_EQ(utf8_length("a\xC3\xA9"), 1U);
  EXPECT_EQ(utf8_length("\xC3\xA9z"), 2U);
  EXPECT_EQ(utf8_length("\xE2\x82\xACz"), 3U);
  EXPECT_EQ(utf8_length("\xF0\x9F\x98\x80z"), 4U);
  EXPECT_EQ(utf8_length("\xA9z"), 0U);
}

TEST(Utf8, PrefixNeverCutsACharacter) {
  const std::string euros = "\xE2\x82\xAC\xE2\x82\xAC";
  for (std::size_t limit = 0; limit < 8; ++limit) {
    EXPECT_EQ(utf8_prefix(euros, limit), euros.substr(0, limit / 3 * 3)) << limit;
  }
}

TEST(Utf8, ShortenedSaysThatThereWasMore) {
  const std::string euros = "\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC";
  EXPECT_EQ(utf8_shortened(euros, 9), euros);
  EXPECT_EQ(utf8_shortened(euros, 8), "\xE2\x82\xAC...");
  EXPECT_EQ(utf8_shortened(euros, 3), "...");
  EXPECT_EQ(utf8_shortened(euros, 2), "");
}

}  // namespace
}  // namespace plimsoll
