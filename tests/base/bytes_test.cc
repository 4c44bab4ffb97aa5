#include "base/bytes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace plimsoll {
namespace {

constexpr Bytes kMin{std::numeric_limits<std::int64_t>::min()};

TEST(Bytes, Literals) {
  EXPECT_EQ(1_KiB, 1024_B);
  EXPECT_EQ(80_GiB, Bytes{85'899'345'920});
  EXPECT_EQ(Bytes::from_mib(81920), 80_GiB);
}

TEST(Bytes, SaturatesInsteadOfWrapping) {
  EXPECT_EQ(Bytes::max() + 1_B, Bytes::max());
  EXPECT_EQ(kMin + Bytes{-1}, kMin);
  EXPECT_EQ(kMin - 1_B, kMin);
  EXPECT_EQ(Bytes::max() - Bytes{-1}, Bytes::max());
  EXPECT_EQ(0_B - kMin, Bytes::max());
  EXPECT_EQ(Bytes::max() * 2, Bytes::max());
  EXPECT_EQ(Bytes::max() * -2, kMin);
  EXPECT_EQ(kMin * 2, kMin);
  EXPECT_EQ(kMin * -1, Bytes::max());
  EXPECT_EQ(Bytes{std::int64_t{1} << 40} * (std::int64_t{1} << 40), Bytes::max());
  EXPECT_EQ(Bytes::from_mib(std::numeric_limits<std::int64_t>::max()), Bytes::max());
  Bytes sum = Bytes::max();
  sum += Bytes::max();
  EXPECT_EQ(sum, Bytes::max());
  sum -= Bytes::max();
  EXPECT_EQ(sum, 0_B);
}

TEST(Bytes, CeilRoundsUpAndSaturates) {
  EXPECT_EQ(Bytes::ceil(0.1), 1_B);
  EXPECT_EQ(Bytes::ceil(-0.1), 0_B);
  EXPECT_EQ(Bytes::ceil(3.0), 3_B);
  EXPECT_EQ(Bytes::ceil(1e300), Bytes::max());
  EXPECT_EQ(Bytes::ceil(-1e300), kMin);
  EXPECT_EQ(Bytes::ceil(std::numeric_limits<double>::infinity()), Bytes::max());
  EXPECT_EQ(Bytes::ceil(std::nan("")), Bytes::max()) << "what is unknown must not look small";
  EXPECT_EQ(Bytes::ceil(9223372036854775808.0), Bytes::max());
}

TEST(Bytes, TextHasThreeDigitsAndAUnit) {
  EXPECT_EQ(to_string(0_B), "0 B");
  EXPECT_EQ(to_string(512_B), "512 B");
  EXPECT_EQ(to_string(1023_B), "1023 B");
  EXPECT_EQ(to_string(1024_B), "1.00 KiB");
  EXPECT_EQ(to_string(1536_B), "1.50 KiB");
  EXPECT_EQ(to_string(Bytes{10'230}), "9.99 KiB");
  EXPECT_EQ(to_string(Bytes{76'557'000'000}), "71.3 GiB");
  EXPECT_EQ(to_string(Bytes{5'134'000'000'000}), "4.67 TiB");
  EXPECT_EQ(to_string(1_MiB - 1_B), "1.00 MiB") << "and not 1024 KiB";
  EXPECT_EQ(to_string(1000_KiB), "1000 KiB");
  EXPECT_EQ(to_string(Bytes{-1536}), "-1.50 KiB");
  EXPECT_EQ(to_string(Bytes::max()), "8.00 EiB");
  EXPECT_EQ(to_string(kMin), "-8.00 EiB");
}

}  // namespace
}  // namespace plimsoll
