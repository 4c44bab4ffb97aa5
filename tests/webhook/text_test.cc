#include "webhook/text.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace plimsoll::webhook {
namespace {

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
    EXPECT_TRUE(is_utf8(line)) << limit;
  }
  EXPECT_EQ(one_line(euros, 11), "\xE2\x82\xAC\xE2\x82\xAC...");
}

}  // namespace
}  // namespace plimsoll::webhook
