#include "estimator/swap/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/estimator/swap/published_profile.h"

namespace plimsoll::estimator {
namespace {

SwapPlan two_packs() {
  return {.mode = SwapMode::kVPP,
          .gpus = 2,
          .samples = 8,
          .forward_microbatch = 2,
          .backward_microbatch = 1,
          .forward_packs = {0, 10},
          .backward_packs = {0, 20}};
}

// As plimsoll.harmony.profile.device_bytes() counts.
TEST(SwapMemory, OfPlimsollsRuntimeHasWhatIsHandedOver) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapCosts costs(profile);
  const SwapPlan plan = two_packs();
  const Bytes last = costs.backward(1)->memory(20, 52);
  EXPECT_EQ(device_memory(plan, costs, SwapRuntime::kPublished), last);
  EXPECT_EQ(device_memory(plan, costs, SwapRuntime::kPlimsoll), last + profile.input[20] * 8);
  SwapPlan prefetching = plan;
  prefetching.prefetch = true;
  EXPECT_EQ(device_memory(prefetching, costs, SwapRuntime::kPlimsoll), last + profile.input[20] * 8)
      << "the last backward pack is the last task of its GPU";
}

TEST(SwapMemory, OfVDPOnlyTheTaskCounts) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapCosts costs(profile);
  SwapPlan plan = two_packs();
  plan.mode = SwapMode::kVDP;
  EXPECT_EQ(device_memory(plan, costs, SwapRuntime::kPlimsoll), costs.backward(1)->memory(20, 52));
  plan.prefetch = true;
  EXPECT_EQ(device_memory(plan, costs, SwapRuntime::kPlimsoll),
            costs.backward(1)->memory(20, 52) + costs.moved(0, 20));
}

TEST(SwapMemory, TheHostHoldsTheModelItsStateAndTheStashes) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapPlan plan = two_packs();
  plan.backward_packs = {0, 5, 20};
  const SwapHostMemory host = host_memory(plan, profile);
  EXPECT_EQ(host.model, 6'753'416'192_B);
  EXPECT_EQ(host.gradients, 6'552'089'600_B);
  EXPECT_EQ(host.optimizer, 13'104'179'200_B);
  EXPECT_EQ(host.stash, profile.input[5] * 8);
  EXPECT_EQ(host.hand_over, profile.input[20] * 8) << "other microbatches in backward: through the host";
  EXPECT_EQ(host.total(), host.model + host.gradients + host.optimizer + host.stash + host.hand_over);
}

TEST(SwapMemory, StashesThatStayAreNotOnTheHost) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapPlan plan = two_packs();
  plan.gpus = 1;
  plan.backward_packs = {0, 5, 10, 20};
  EXPECT_EQ(host_memory(plan, profile).stash, (profile.input[5] + profile.input[10]) * 8);
  plan.resident_stashes = {10};
  EXPECT_EQ(host_memory(plan, profile).stash, profile.input[5] * 8);
}

TEST(SwapMemory, LayersThatStayHaveNoGradientsAndNoOptimizerOnTheHost) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapPlan plan = two_packs();
  plan.mirrored = true;
  const SwapHostMemory none = host_memory(plan, profile);
  plan.resident = {3, 21};
  const SwapHostMemory two = host_memory(plan, profile);
  EXPECT_EQ(two.model, none.model) << "the model is the user's own";
  EXPECT_EQ(two.gradients, none.gradients - profile.weights[3] - profile.weights[21]);
  EXPECT_EQ(two.optimizer, none.optimizer - profile.state[3] - profile.state[21]);
}

TEST(SwapMemory, EachTaskHasItsMemoryInTheOrderOfTheTasks) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapCosts costs(profile);
  const SwapPlan plan = two_packs();
  const std::vector<Bytes> tasks = memory_of_tasks(plan, costs, SwapRuntime::kPlimsoll);
  ASSERT_EQ(tasks.size(), packed_tasks(plan, profile.layers()).size());
  EXPECT_EQ(tasks.front(), costs.forward(2)->memory(0, 10));
  EXPECT_EQ(*std::max_element(tasks.begin(), tasks.end()),
            device_memory(plan, costs, SwapRuntime::kPlimsoll));
}

TEST(SwapMemory, TheFullestTasksPartsAreItsMemory) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapCosts costs(profile);
  SwapPlan plan = two_packs();
  const TaskMemory forward_and_back = fullest_task(plan, costs, SwapRuntime::kPlimsoll);
  EXPECT_EQ(forward_and_back.total(), device_memory(plan, costs, SwapRuntime::kPlimsoll));
  EXPECT_EQ(forward_and_back.weights, costs.moved(20, 52));
  EXPECT_EQ(forward_and_back.gradients, costs.gradients(20, 52, SwapRuntime::kPlimsoll))
      << "it is a backward task";
  EXPECT_EQ(forward_and_back.optimizer, Bytes{}) << "no layer stays";
  EXPECT_GT(forward_and_back.activations, Bytes{});
}

// The copies that move were not counted: with all gradients a job in mixed precision took 18 bytes a parameter, and asked for 16.
TEST(SwapMemory, TheHostMayKeepWeightsInAWiderTypeThanMoves) {
  SwapProfile profile = testing::published_profile("gpt2_xl");
  const SwapHostMemory same = host_memory(two_packs(), profile);
  EXPECT_EQ(same.copies, Bytes{});
  for (const Bytes weights : profile.weights) {
    profile.host_weights.push_back(weights * 2);
  }
  const SwapHostMemory wider = host_memory(two_packs(), profile);
  const Bytes weights = same.gradients;
  const Bytes buffers = same.model - weights;
  const Bytes largest = *std::ranges::max_element(profile.weights);
  EXPECT_EQ(wider.model, weights * 2 + buffers * 2);
  EXPECT_EQ(wider.copies, weights + buffers);
  EXPECT_EQ(wider.gradients, weights + largest * 2) << "as they left, and the layer that is updated";
  EXPECT_EQ(wider.optimizer, same.optimizer);
  EXPECT_EQ(wider.total() - wider.stash - wider.hand_over,
            wider.model + wider.copies + wider.gradients + wider.optimizer);

  SwapPlan plan = two_packs();
  plan.mirrored = true;
  plan.resident = {3};
  EXPECT_EQ(host_memory(plan, profile).copies, wider.copies - profile.moved(3)) << "it does not move";
}

}  // namespace
}  // namespace plimsoll::estimator
