#include "estimator/swap/task_loads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/estimator/swap/published_profile.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

SwapPlan mirrored_plan(std::int64_t gpus) {
  return {.mode = SwapMode::kVPP,
          .gpus = gpus,
          .samples = 8,
          .forward_microbatch = 1,
          .backward_microbatch = 1,
          .forward_packs = {0, 10, 20, 30},
          .backward_packs = {0, 10, 20, 30, 40},
          .mirrored = true};
}

TEST(TaskLoads, WhatWasNotMeasuredTakesMoreThanAnyMemory) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  const SwapCosts costs(profile);
  EXPECT_GT(task_memory(mirrored_plan(2), costs, nullptr, {}, SwapRuntime::kPublished), 1'000'000_GiB);
}

TEST(TaskLoads, ALayerThatStaysHoldsItsWeightsGradientsAndStateDuringAllTasksOfItsGpu) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapCosts costs(profile);
  const SwapPlan none = mirrored_plan(2);
  SwapPlan one = none;
  one.resident = {12};  // on GPU 1, in the tasks 1 (forward) and 7 (backward)
  const TaskLoads before(none, costs, SwapRuntime::kPlimsoll);
  const TaskLoads after(one, costs, SwapRuntime::kPlimsoll);
  const Bytes weights = profile.moved(12);
  const Bytes all = weights + profile.weights[12] + profile.state[12];
  EXPECT_EQ(resident_bytes(profile, 12), all);
  const std::vector<PackedTask> tasks = packed_tasks(none, profile.layers());
  ASSERT_EQ(after.tasks(), tasks.size());
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    SCOPED_TRACE("task " + std::to_string(i));
    const Bytes more = after.total(i) - before.total(i);
    if (tasks[i].gpu == 0) {
      EXPECT_EQ(more, Bytes{});
    } else if (tasks[i].first == 10) {
      EXPECT_EQ(more, tasks[i].forward ? all - weights : profile.state[12])
          << "the task has the weights already";
    } else {
      EXPECT_EQ(more, all);
    }
    EXPECT_EQ(after.parts(i).total(), after.total(i));
    EXPECT_EQ(after.parts(i).optimizer, tasks[i].gpu == 1 ? profile.state[12] : Bytes{});
  }
}

TEST(TaskLoads, InAnotherTypeTheParametersOfTheHostAreThereToo) {
  SwapProfile profile = testing::published_profile("gpt2_xl");
  for (const Bytes weights : profile.weights) {
    profile.host_weights.push_back(weights * 2);
  }
  EXPECT_EQ(resident_bytes(profile, 12), profile.moved(12) + profile.weights[12] * 3 + profile.state[12]);
}

// Large activations hide what an update needs beside the gradients; small ones do not.
TEST(TaskLoads, UpdatesHaveRoomForTheirTemporaryTensors) {
  SwapProfile profile = testing::published_profile("gpt2_xl");
  for (SwapPass& pass : profile.backward) {
    for (std::size_t i = 0; i < pass.memory.size(); ++i) {
      pass.memory[i] = profile.moved(i) + profile.weights[i] + profile.input[i] * pass.microbatch;
    }
  }
  SwapCosts costs(profile);
  SwapPlan plan = mirrored_plan(1);
  plan.resident = {12};
  const TaskLoads loads(plan, costs, SwapRuntime::kPlimsoll);
  const std::size_t backward = 7;
  EXPECT_EQ(loads.total(backward), costs.moved(10, 20) + costs.gradients(10, 20, SwapRuntime::kPlimsoll) +
                                       profile.weights[12] * 3 + profile.state[12]);
}

std::vector<Bytes> memory_of(const TaskLoads& loads) {
  std::vector<Bytes> memory;
  for (std::size_t task = 0; task < loads.tasks(); ++task) {
    memory.push_back(loads.total(task));
  }
  return memory;
}

// What is counted layer by layer is what a plan with all of them is counted to take, and never above the capacity.
TEST(TaskLoads, LayersStayWhileTheyFit) {
  const auto seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapCosts costs(profile);
  for (int i = 0; i < 200; ++i) {
    SwapPlan plan = mirrored_plan(std::int64_t{1} << random() % 3);
    plan.prefetch = random() % 2 == 0;
    const Bytes capacity{static_cast<std::int64_t>(4e9 + static_cast<double>(random() % 100) * 1e8)};
    TaskLoads loads(plan, costs, SwapRuntime::kPlimsoll);
    const bool fits_without =
        std::ranges::all_of(memory_of(loads), [&](Bytes each) { return each <= capacity; });
    std::vector<std::size_t> order;
    for (std::size_t layer = 0; layer < profile.layers(); ++layer) {
      order.push_back(layer);
    }
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t layer : order) {
      const std::vector<Bytes> before = memory_of(loads);
      if (loads.keep_within(layer, capacity)) {
        plan.resident.push_back(layer);
      } else {
        EXPECT_EQ(memory_of(loads), before) << "refused, and nothing changed";
      }
    }
    std::ranges::sort(plan.resident);
    ASSERT_TRUE(check_plan(plan, profile.layers()).ok());
    EXPECT_EQ(memory_of(loads), memory_of(TaskLoads(plan, costs, SwapRuntime::kPlimsoll)));
    if (fits_without) {
      EXPECT_LE(std::ranges::max(memory_of(loads)), capacity);
    }
    for (std::size_t layer = 0; layer < profile.layers(); ++layer) {
      if (!std::ranges::binary_search(plan.resident, layer)) {
        EXPECT_FALSE(loads.keep_within(layer, capacity)) << "room for layer " << layer << " was left";
      }
    }
  }
}

StashSpan stash_of(const TaskLoads& loads, std::size_t head) {
  return *std::ranges::find(loads.stashes(), head, &StashSpan::head);
}

TEST(TaskLoads, AStashThatStaysIsThereFromItsForwardToItsBackwardTask) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapCosts costs(profile);
  SwapPlan plan = mirrored_plan(2);
  const TaskLoads before(plan, costs, SwapRuntime::kPlimsoll);
  plan.resident_stashes = {20};  // made by task 2, on GPU 0, and taken by task 6
  ASSERT_TRUE(check_plan(plan, profile.layers()).ok());
  const TaskLoads after(plan, costs, SwapRuntime::kPlimsoll);
  const Bytes stash = profile.input[20] * plan.samples;
  const std::vector<PackedTask> tasks = packed_tasks(plan, profile.layers());
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const bool there = i >= 2 && i <= 6 && tasks[i].gpu == 0;
    EXPECT_EQ(after.total(i) - before.total(i), there ? stash : Bytes{}) << "task " << i;
    EXPECT_EQ(after.parts(i).total(), after.total(i));
  }

  plan.resident_stashes.clear();
  TaskLoads loads(plan, costs, SwapRuntime::kPlimsoll);
  const Bytes fullest = std::max({loads.total(2), loads.total(4), loads.total(6)});
  EXPECT_FALSE(loads.keep_stash_within(stash_of(loads, 20), fullest + stash - 1_B));
  EXPECT_EQ(loads.total(2), before.total(2)) << "refused, and nothing changed";
  EXPECT_TRUE(loads.keep_stash_within(stash_of(loads, 20), fullest + stash));
  EXPECT_EQ(loads.total(6), after.total(6));

  plan.mode = SwapMode::kVDP;
  plan.mirrored = false;
  TaskLoads parallel(plan, costs, SwapRuntime::kPlimsoll);
  const Bytes alone = parallel.total(2);
  EXPECT_TRUE(parallel.keep_stash_within(stash_of(parallel, 20), 100_GiB));
  EXPECT_EQ(parallel.total(2) - alone, profile.input[20] * (plan.samples / 2))
      << "of its share of the samples";

  plan.mode = SwapMode::kVPP;
  plan.gpus = 4;
  TaskLoads apart(plan, costs, SwapRuntime::kPlimsoll);
  EXPECT_FALSE(apart.keep_stash_within(stash_of(apart, 10), 100_GiB)) << "its tasks are on different GPUs";
}

TEST(TaskLoads, OfDifferentGpusNoneStays) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapCosts costs(profile);
  SwapPlan plan = mirrored_plan(4);
  plan.mirrored = false;
  TaskLoads loads(plan, costs, SwapRuntime::kPlimsoll);
  EXPECT_FALSE(loads.keep_within(12, Bytes::max()));
  EXPECT_TRUE(loads.keep_within(45, Bytes::max())) << "the last pack has one task";
}

}  // namespace
}  // namespace plimsoll::estimator
