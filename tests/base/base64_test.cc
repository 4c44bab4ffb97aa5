#include "base/base64.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/testing/random_seed.h"

namespace plimsoll {
namespace {

TEST(Base64, EncodesTheVectorsOfTheRfc) {  // RFC 4648, section 10
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : vectors) {
    EXPECT_EQ(base64_encode(bytes), text);
    const Result<std::string> decoded = base64_decode(text);
    ASSERT_TRUE(decoded.ok()) << text;
    EXPECT_EQ(*decoded, bytes);
  }
}

TEST(Base64, AnyBytesSurviveTheWay) {
  const std::uint32_t seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 200; ++i) {
    std::string bytes(random() % 100, '\0');
    for (char& c : bytes) {
      c = static_cast<char>(random());
    }
    const Result<std::string> decoded = base64_decode(base64_encode(bytes));
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(*decoded, bytes);
  }
}

TEST(Base64, SkipsLineBreaks) {
  EXPECT_EQ(*base64_decode("Zm9v\r\nYmFy\n"), "foobar");
}

TEST(Base64, RefusesWhatIsNoBase64) {
  for (const char* text :
       {"Z", "Zg", "Zg=", "Zg===", "====", "=", "Zm9v=", "Z=g=", "Zg==Zg==", "Zm9-", "Zm 9v", "Zm9v\xff"}) {
    EXPECT_FALSE(base64_decode(text).ok()) << text;
  }
}

}  // namespace
}  // namespace plimsoll
