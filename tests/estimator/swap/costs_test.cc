#include "estimator/swap/costs.h"

#include <gtest/gtest.h>

#include "tests/estimator/swap/published_profile.h"

namespace plimsoll::estimator {
namespace {

TEST(SwapCosts, OfARunAreThoseOfItsLayers) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapCosts costs(profile);
  const PassCosts& forward = *costs.forward(2);
  const SwapPass& measured = profile.forward[1];
  ASSERT_EQ(measured.microbatch, 2);
  EXPECT_NEAR(forward.seconds(1, 3), measured.seconds[1] + measured.seconds[2], 1e-12);
  EXPECT_EQ(forward.memory(1, 3), measured.memory[1] + measured.memory[2] - profile.input[2] * 2)
      << "the second layer's input is the first one's result";
  EXPECT_EQ(forward.input(3), profile.input[3] * 2);
  EXPECT_EQ(forward.input(profile.layers()), 0_B);
  EXPECT_EQ(costs.moved(0, 2),
            profile.weights[0] + profile.buffers[0] + profile.weights[1] + profile.buffers[1]);
  EXPECT_NEAR(costs.update_seconds(0, 2), profile.update_seconds[0] + profile.update_seconds[1], 1e-12);
}

TEST(SwapCosts, MicrobatchesThatWereNotMeasuredHaveNone) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapCosts costs(profile);
  EXPECT_EQ(costs.backward(16), nullptr);
  EXPECT_NE(costs.backward(3), nullptr) << "between two that were";
  EXPECT_EQ(costs.backward(3), costs.backward(3));
}

}  // namespace
}  // namespace plimsoll::estimator
