#include "estimator/host_training/swap_training.h"

#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

SwapTraining gpt2_xl() {
  SwapTraining swap;
  swap.planned.plan.mode = SwapMode::kVPP;
  swap.planned.plan.gpus = 4;
  swap.planned.seconds = 40.5;
  swap.planned.bound_seconds = 38.51;
  swap.planned.volumes = {
      .weights_in = 11_GiB, .gradients_out = 6_GiB, .stash = 5_GiB, .hand_over = 1_GiB, .p2p = 6_GiB};
  swap.layers = 52;
  swap.host_memory = 35_GiB;
  swap.resident_seconds = 27;
  return swap;
}

TEST(SwapTraining, IsTheStatusOfTheApi) {
  EXPECT_EQ(write_json(to_json(gpt2_xl())),
            R"({"gpus":4,"hostMemoryBytes":37580963840,"iterationSeconds":"40.5","layers":52,)"
            R"("lowerBoundSeconds":"38.5","mode":"vPP","peerToPeerBytes":6442450944,"slowdown":"1.50",)"
            R"("swappedBytes":24696061952})");
}

TEST(SwapTraining, IsOneSentence) {
  EXPECT_EQ(
      text_of(gpt2_xl()),
      "a swap plan (vPP, 52 layers): about 40.5 s an iteration, 1.50 times what it would take in GPU memory, with "
      "35.0 GiB of host memory");
}

TEST(SwapTraining, WithoutTimesThereIsNoSlowdown) {
  EXPECT_EQ(SwapTraining().slowdown(), 0);
}

}  // namespace
}  // namespace plimsoll::estimator
