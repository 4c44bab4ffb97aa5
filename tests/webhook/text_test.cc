#include "webhook/text.h"

#include <gtest/gtest.h>

namespace plimsoll::webhook {
namespace {

TEST(IsUtf8Json, TakesEveryLengthOfSequence) {
  EXPECT_TRUE(is_utf8_json(""));
  EXPECT_TRUE(is_utf8_json(R"({"a":"b"})"));
  EXPECT_TRUE(is_utf8_json("\"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\""));
  EXPECT_TRUE(is_utf8_json("\xF4\x8F\xBF\xBF"));  // U+10FFFF
}

TEST(IsUtf8Json, RefusesWhatIsNone) {
  for (const std::string bytes :
       {"\x80", "\xC3", "\xC0\xAF", "\xC1\x81", "\xE0\x80\xAF", "\xE2\x82", "\xED\xA0\x80",
        "\xF0\x80\x80\xAF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC3\x28"}) {
    EXPECT_FALSE(is_utf8_json("\"" + bytes + "\"")) << ::testing::PrintToString(bytes);
    EXPECT_FALSE(is_utf8_json(bytes)) << ::testing::PrintToString(bytes);
  }
}

TEST(IsUtf8Json, WantsSurrogateEscapesInPairs) {
  EXPECT_TRUE(is_utf8_json(R"("\ud83d\ude00")"));
  EXPECT_TRUE(is_utf8_json(R"("\u00e9\\ude00")"));  // an escaped backslash, then text
  EXPECT_FALSE(is_utf8_json(R"("\ud83d")"));
  EXPECT_FALSE(is_utf8_json(R"("\ude00")"));
  EXPECT_FALSE(is_utf8_json(R"("\ud83d\n")"));
  EXPECT_FALSE(is_utf8_json(R"("\ud83d\ud83d")"));
  EXPECT_TRUE(is_utf8_json("\\"));  // cut off: the parser's to refuse
  EXPECT_TRUE(is_utf8_json("\\u12"));
}

TEST(OneLine, CleansAndCuts) {
  EXPECT_EQ(one_line("a\nb\tc\x7F", 100), "a b c ");
  EXPECT_EQ(one_line("a\xFFz", 100), "a?z");
  EXPECT_EQ(one_line("abcdef", 6), "abcdef");
  EXPECT_EQ(one_line("abcdefg", 6), "abc...");
  EXPECT_EQ(one_line("abc", 2), "");
  EXPECT_EQ(one_line("", 10), "");
}

TEST(OneLine, NeverCutsASequence) {
  const std::string euros = "\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC\xE2\x82\xAC";
  EXPECT_EQ(one_line(euros, 12), euros);
  for (std::size_t limit = 0; limit < 12; ++limit) {
    const std::string line = one_line(euros, limit);
    EXPECT_LE(line.size(), limit);
    EXPECT_TRUE(is_utf8_json(line)) << limit;
  }
  EXPECT_EQ(one_line(euros, 11), "\xE2\x82\xAC\xE2\x82\xAC...");
}

}  // namespace
}  // namespace plimsoll::webhook
