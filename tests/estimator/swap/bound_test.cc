#include "estimator/swap/bound.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "estimator/swap/memory.h"
#include "estimator/swap/simulator.h"
#include "tests/estimator/swap/published_profile.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

// Any plan that fits is at or above the bound of its kind, on machines of all sorts.
TEST(SwapBound, NoRandomPlanIsFaster) {
  const auto seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  const std::vector<SwapProfile> profiles = {testing::published_profile("bert_large"),
                                             testing::published_profile("gpt2_xl")};
  int compared = 0;
  int with_residents = 0;
  int with_stashes = 0;
  for (int i = 0; i < 3000; ++i) {
    const SwapProfile& profile = profiles[below(profiles.size())];
    SwapCosts costs(profile);
    SwapMachine machine = published_machine();
    machine.runtime = below(2) == 0 ? SwapRuntime::kPlimsoll : SwapRuntime::kPublished;
    machine.fixed_shares = below(2) == 0;
    machine.gpus_per_root = static_cast<std::int64_t>(below(3));
    machine.p2p_bandwidth = below(4) == 0 ? 0 : machine.p2p_bandwidth;
    machine.task_seconds = below(2) == 0 ? 0 : 0.04;
    SwapPlan plan{.mode = below(2) == 0 ? SwapMode::kVPP : SwapMode::kVDP,
                  .gpus = std::int64_t{1} << below(4),
                  .samples = 32,
                  .forward_microbatch = std::int64_t{1} << below(3),
                  .backward_microbatch = std::int64_t{1} << below(3),
                  .forward_packs = {0},
                  .backward_packs = {0},
                  .prefetch = below(2) == 0};
    const std::size_t every = 1 + below(profile.layers());
    for (std::size_t layer = 1; layer < profile.layers(); ++layer) {
      if (below(every) == 0) {
        plan.backward_packs.push_back(layer);
      }
    }
    for (std::size_t layer = 1; layer < plan.backward_packs.back(); ++layer) {
      if (below(every) == 0) {
        plan.forward_packs.push_back(layer);
      }
    }
    if (plan.backward_packs.back() == 0) {
      plan.forward_packs.clear();
    }
    plan.mirrored = plan.mode == SwapMode::kVPP && below(2) == 0;
    machine.gpu_memory_bandwidth = below(2) == 0 ? 0 : 484e9;
    const std::vector<std::int32_t> homes = homes_of_layers(plan, profile.layers());
    const std::size_t staying = 1 + below(4);
    for (std::size_t layer = 0; layer < profile.layers() && layers_may_stay(machine); ++layer) {
      if (homes[layer] >= 0 && below(staying) == 0) {
        plan.resident.push_back(layer);
      }
    }
    with_residents += plan.resident.empty() ? 0 : 1;
    const std::vector<PackedTask> tasks = packed_tasks(plan, profile.layers());
    for (const StashSpan& span : stash_spans(plan, tasks)) {
      if (stashes_may_stay(machine) && tasks[span.made].gpu == tasks[span.taken].gpu && below(staying) == 0) {
        plan.resident_stashes.push_back(span.head);
      }
    }
    with_stashes += plan.resident_stashes.empty() ? 0 : 1;
    ASSERT_TRUE(check_plan(plan, profile.layers()).ok());
    const Result<SwapTimes> times = simulate_swap(plan, costs, machine);
    ASSERT_TRUE(times.ok()) << to_string(times.error());
    const std::optional<LeastWork> least =
        least_work({plan.mode, plan.gpus, plan.samples, plan.forward_microbatch, plan.backward_microbatch,
                    plan.prefetch},
                   costs, machine, device_memory(plan, costs, machine.runtime));
    ASSERT_TRUE(least.has_value());
    EXPECT_LE(least->seconds(), times->seconds * (1 + 1e-9)) << "case " << i;
    ++compared;
  }
  EXPECT_EQ(compared, 3000);
  EXPECT_GT(with_residents, 100);
  EXPECT_GT(with_stashes, 100);
}

TEST(SwapBound, ThereIsNoneWhereALayerExceedsTheGpu) {
  const SwapProfile profile = testing::published_profile("bert_large");
  SwapCosts costs(profile);
  EXPECT_FALSE(least_work({}, costs, published_machine(), 1_MiB).has_value());
  EXPECT_FALSE(
      least_work({.samples = 64, .forward_microbatch = 64}, costs, published_machine(), 10_GiB).has_value())
      << "not measured";
}

// Of Harmony's published profile: 64 samples on 4 GPUs, no transfers and nothing computed twice.
TEST(SwapBound, InGpuMemoryAnIterationIsItsComputation) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapCosts costs(profile);
  const SwapPlan plan{.mode = SwapMode::kVPP,
                      .gpus = 4,
                      .samples = 64,
                      .forward_microbatch = 4,
                      .backward_microbatch = 2,
                      .forward_packs = {},
                      .backward_packs = {0}};
  const double forward = costs.forward(4)->seconds(0, 52) * 4;
  const double backward = (costs.backward(2)->seconds(0, 52) - costs.forward(2)->seconds(0, 52)) * 8;
  EXPECT_DOUBLE_EQ(resident_seconds(plan, costs), forward + backward);
  SwapPlan unknown = plan;
  unknown.backward_microbatch = 1'000'000;
  EXPECT_EQ(resident_seconds(unknown, costs), 0);
}

}  // namespace
}  // namespace plimsoll::estimator
