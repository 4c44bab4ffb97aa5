#include "base/quantity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "tests/testing/random_seed.h"

namespace plimsoll {
namespace {

using ::testing::HasSubstr;

Bytes bytes(std::string_view text) {
  const Result<Bytes> value = parse_bytes(text);
  EXPECT_TRUE(value.ok()) << text;
  return value ? *value : Bytes{-1};
}

TEST(Quantity, ReadsEverySuffix) {
  EXPECT_EQ(bytes("0"), 0_B);
  EXPECT_EQ(bytes("80Gi"), 80_GiB);
  EXPECT_EQ(bytes("1Ki"), 1_KiB);
  EXPECT_EQ(bytes("81920Mi"), 80_GiB);
  EXPECT_EQ(bytes("2Ti"), 2048_GiB);
  EXPECT_EQ(bytes("1Pi"), Bytes{std::int64_t{1} << 50});
  EXPECT_EQ(bytes("1Ei"), Bytes{std::int64_t{1} << 60});
  EXPECT_EQ(bytes("1k"), 1000_B);
  EXPECT_EQ(bytes("500M"), 500'000'000_B);
  EXPECT_EQ(bytes("3G"), 3'000'000'000_B);
  EXPECT_EQ(bytes("3T"), 3'000'000'000'000_B);
  EXPECT_EQ(bytes("3P"), 3'000'000'000'000'000_B);
  EXPECT_EQ(bytes("1E"), 1'000'000'000'000'000'000_B) << "exa, no exponent";
  EXPECT_EQ(bytes("12.5Gi"), Bytes{13'421'772'800});
  EXPECT_EQ(bytes("1e3"), 1000_B);
  EXPECT_EQ(bytes("1E3"), 1000_B);
  EXPECT_EQ(bytes("1.5e+3"), 1500_B);
  EXPECT_EQ(bytes("2500e-2"), 25_B);
  EXPECT_EQ(bytes("+5"), 5_B);
  EXPECT_EQ(bytes("5."), 5_B);
  EXPECT_EQ(bytes(".5Ki"), 512_B);
  EXPECT_EQ(bytes("-0"), 0_B);
}

TEST(Quantity, RoundsBytesUp) {
  EXPECT_EQ(bytes("0.5"), 1_B);
  EXPECT_EQ(bytes("1500m"), 2_B);
  EXPECT_EQ(bytes("2000m"), 2_B);
  EXPECT_EQ(bytes("1n"), 1_B);
  EXPECT_EQ(bytes("1000000000u"), 1000_B);
  EXPECT_EQ(bytes("1e-300"), 1_B);
  EXPECT_EQ(bytes("0e-300"), 0_B);
  EXPECT_EQ(bytes("0.0009765625Ki"), 1_B) << "exactly one";
  EXPECT_EQ(bytes("0.0009765626Ki"), 2_B);
}

TEST(Quantity, IsExactWhereDoublesAreNot) {
  EXPECT_EQ(bytes("9007199254740993"), Bytes{9'007'199'254'740'993});
  EXPECT_EQ(bytes("9223372036854775807"), Bytes::max());
  EXPECT_EQ(bytes("9223372036854775.807k"), Bytes::max());
  EXPECT_EQ(bytes("7.999999999999999999Ei"), Bytes{9'223'372'036'854'775'807});
  const std::uint32_t seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 1000; ++i) {
    const Bytes value{static_cast<std::int64_t>((random() >> 1) >> (random() % 62))};
    EXPECT_EQ(bytes(std::to_string(value.count)), value);
    EXPECT_EQ(bytes(format_bytes(value)), value) << format_bytes(value);
  }
}

TEST(Quantity, RefusesWhatLiesOutOfRange) {
  for (const char* text : {"9223372036854775808", "8Ei", "10E", "1e19", "1e400", "1e99999999999",
                           "9223372036854775807.5", "99999999999999999999999999999999999999"}) {
    const Result<Bytes> value = parse_bytes(text);
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_THAT(value.error().message, HasSubstr("larger than 2^63")) << text;
  }
  EXPECT_FALSE(parse_quantity("9223372036854775808").ok());
  EXPECT_FALSE(parse_quantity("1e400").ok());
  EXPECT_FALSE(parse_quantity("-8Ei").ok());
}

TEST(Quantity, RefusesWhatIsNone) {
  for (const char* text :
       {"",     " ",     "Gi",    "-",     "+",     ".",   "-.",    "abc", "80GB",  "80gi",  "80K",
        "80ki", "80 Gi", " 80Gi", "80Gi ", "80GiB", "1e",  "1e+",   "1e-", "1e+-3", "1e3Ki", "1e1.5",
        "0x10", "1_000", "1,5",   "1.5.5", "--1",   "+-1", "1KiKi", "inf", "nan",   "١"}) {
    EXPECT_FALSE(parse_bytes(text).ok()) << text;
    EXPECT_FALSE(parse_quantity(text).ok()) << text;
  }
  EXPECT_FALSE(parse_bytes(std::string_view("1\0", 2)).ok());
  const Result<Bytes> long_text = parse_bytes(std::string(100'000, '1'));
  ASSERT_FALSE(long_text.ok());
  EXPECT_LE(long_text.error().fragment.size(), 64U);
}

TEST(Quantity, BytesAreNotNegative) {
  EXPECT_THAT(parse_bytes("-1").error().message, HasSubstr("cannot be negative"));
  EXPECT_THAT(parse_bytes("-1m").error().message, HasSubstr("cannot be negative"));
}

TEST(Quantity, ReadsRealNumbers) {
  EXPECT_DOUBLE_EQ(*parse_quantity("1500m"), 1.5);
  EXPECT_DOUBLE_EQ(*parse_quantity("-2k"), -2000);
  EXPECT_DOUBLE_EQ(*parse_quantity("12.5Gi"), 12.5 * 1073741824);
  EXPECT_EQ(*parse_quantity("0.1"), 0.1);
  EXPECT_EQ(*parse_quantity("100m"), 0.1) << "rounded once";
  EXPECT_EQ(*parse_quantity("1e-400"), 0);
  EXPECT_EQ(*parse_quantity("0e400"), 0);
  EXPECT_EQ(*parse_quantity("1n"), 1e-9);
}

TEST(Quantity, FormatsTheShortestExactSpelling) {
  EXPECT_EQ(format_bytes(80_GiB), "80Gi");
  EXPECT_EQ(format_bytes(1536_MiB), "1536Mi");
  EXPECT_EQ(format_bytes(1000_B), "1000");
  EXPECT_EQ(format_bytes(0_B), "0");
  EXPECT_EQ(format_bytes(Bytes{std::int64_t{1} << 62}), "4Ei");
}

TEST(Quantity, OfAJsonValueIsItsBytesOrNothing) {
  EXPECT_EQ(quantity_of(Json("16Gi")), 16_GiB);
  EXPECT_EQ(quantity_of(Json(1024)), 1_KiB);
  EXPECT_EQ(quantity_of(Json("0")), 0_B);
  for (const Json& other :
       {Json(), Json(-1), Json("-1"), Json("lots"), Json(""), Json(true), Json(1.5), Json(::Json::arrayValue),
        Json(::Json::objectValue), Json(::Json::UInt64{18446744073709551615ULL})}) {
    EXPECT_EQ(quantity_of(other), std::nullopt) << write_json(other);
  }
}

TEST(Percentage, ReadsAShare) {
  EXPECT_DOUBLE_EQ(*parse_percentage("5%"), 0.05);
  EXPECT_DOUBLE_EQ(*parse_percentage("7.5%"), 0.075);
  EXPECT_DOUBLE_EQ(*parse_percentage("0%"), 0);
  EXPECT_DOUBLE_EQ(*parse_percentage("100%"), 1);
  for (const char* text :
       {"", "%", "5", "5 %", "-5%", "+5%", "101%", "1e1%", "5m%", "1k%", "5%%", "nan%", "0x5%"}) {
    EXPECT_FALSE(parse_percentage(text).ok()) << text;
  }
}

}  // namespace
}  // namespace plimsoll
