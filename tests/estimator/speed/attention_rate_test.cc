#include "estimator/speed/attention_rate.h"

#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

TEST(AttentionRate, IsWhatWasMeasured) {
  EXPECT_DOUBLE_EQ(attention_share(FlashAttention::kSecond, 80, 128, 16384, false), 203.0 / 312);
  EXPECT_DOUBLE_EQ(attention_share(FlashAttention::kSecond, 80, 64, 512, false), 132.0 / 312);
}

TEST(AttentionRate, LiesBetweenItsNeighbours) {
  const double middle = attention_share(FlashAttention::kSecond, 90, 128, 3000, true);
  EXPECT_GT(middle, attention_share(FlashAttention::kSecond, 90, 128, 2048, true));
  EXPECT_LT(middle, attention_share(FlashAttention::kSecond, 90, 128, 4096, true));
}

TEST(AttentionRate, BeyondTheMeasuredLengthsIsThatOfTheNearest) {
  EXPECT_DOUBLE_EQ(attention_share(FlashAttention::kSecond, 80, 128, 1, true),
                   attention_share(FlashAttention::kSecond, 80, 128, 512, true));
  EXPECT_DOUBLE_EQ(attention_share(FlashAttention::kSecond, 80, 128, 1 << 20, true),
                   attention_share(FlashAttention::kSecond, 80, 128, 16384, true));
}

TEST(AttentionRate, TheFirstIsAboutHalf) {
  EXPECT_DOUBLE_EQ(attention_share(FlashAttention::kFirst, 80, 128, 16384, true), 83.0 / 312);
  EXPECT_EQ(flash_attention_of(torch_version_of("2.1")), FlashAttention::kFirst);
  EXPECT_EQ(flash_attention_of(torch_version_of("2.2")), FlashAttention::kSecond);
}

TEST(AttentionRate, BothPassesTogetherTakeWhatWasMeasured) {
  for (const FlashAttention flash : {FlashAttention::kFirst, FlashAttention::kSecond}) {
    const AttentionPasses passes = attention_passes(flash);
    EXPECT_NEAR(1 / passes.forward + 2.5 / passes.backward, 3.5, 1e-12);
    EXPECT_GT(passes.forward, passes.backward);
  }
}

TEST(AttentionRate, FallsOnHopper) {
  EXPECT_LT(attention_share(FlashAttention::kSecond, 90, 128, 8192, true),
            attention_share(FlashAttention::kSecond, 80, 128, 8192, true));
}

}  // namespace
}  // namespace plimsoll::estimator
