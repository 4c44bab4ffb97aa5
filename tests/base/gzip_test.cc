#include "base/gzip.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/testing/random_seed.h"

namespace plimsoll {
namespace {

TEST(Gzip, TextSurvivesTheWay) {
  for (const std::string& text :
       {std::string(), std::string("a"), std::string(1'000'000, 'x'), std::string("\0\xff", 2)}) {
    const std::string compressed = gzip(text);
    EXPECT_TRUE(is_gzip(compressed));
    const Result<std::string> content = gunzip(compressed, 2_MiB);
    ASSERT_TRUE(content.ok()) << to_string(content.error());
    EXPECT_EQ(*content, text);
  }
}

TEST(Gzip, RandomBytesSurviveTheWay) {
  const std::uint32_t seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::string bytes(300'000, '\0');
  for (char& c : bytes) {
    c = static_cast<char>(random());
  }
  EXPECT_EQ(*gunzip(gzip(bytes), 1_MiB), bytes);
}

TEST(Gzip, KnowsItsMagic) {
  EXPECT_FALSE(is_gzip(""));
  EXPECT_FALSE(is_gzip("\x1f"));
  EXPECT_FALSE(is_gzip("name,rows"));
}

TEST(Gzip, ABombStopsAtTheLimit) {
  const std::string bomb = gzip(std::string(200 << 20, '\0'));
  EXPECT_LT(bomb.size(), 1U << 20);
  const Result<std::string> content = gunzip(bomb, 1_MiB);
  ASSERT_FALSE(content.ok());
  EXPECT_EQ(content.error().code, ErrorCode::kTooLarge);
  EXPECT_EQ(content.error().message, "the gzip content exceeds 1.00 MiB");
}

TEST(Gzip, TheLimitItselfIsAllowed) {
  EXPECT_TRUE(gunzip(gzip(std::string(1000, 'a')), 1000_B).ok());
  EXPECT_FALSE(gunzip(gzip(std::string(1001, 'a')), 1000_B).ok());
}

TEST(Gzip, RefusesWhatIsBroken) {
  const std::string whole = gzip("name,rows,dim,pooling_factor\nt0,10,8,1\n");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Result<std::string> content = gunzip(whole.substr(0, size), 1_MiB);
    ASSERT_FALSE(content.ok()) << "cut at " << size;
    EXPECT_EQ(content.error().code, ErrorCode::kInvalid);
  }
  EXPECT_FALSE(gunzip(whole + "x", 1_MiB).ok());
  EXPECT_FALSE(gunzip("no gzip at all", 1_MiB).ok());
  std::string flipped = whole;
  flipped[flipped.size() - 8] = static_cast<char>(flipped[flipped.size() - 8] ^ 1);  // the checksum
  EXPECT_FALSE(gunzip(flipped, 1_MiB).ok());
}

}  // namespace
}  // namespace plimsoll
