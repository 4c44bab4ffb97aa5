#include "estimator/swap/simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "tests/estimator/swap/published_profile.h"

namespace plimsoll::estimator {
namespace {

using ::testing::HasSubstr;
using Packs = std::vector<std::size_t>;

double seconds(const std::string& model, const SwapPlan& plan,
               const SwapMachine& machine = published_machine()) {
  const SwapProfile profile = testing::published_profile(model);
  EXPECT_TRUE(check_plan(plan, profile.layers()).ok());
  SwapCosts costs(profile);
  const Result<SwapTimes> times = simulate_swap(plan, costs, machine);
  EXPECT_TRUE(times.ok()) << to_string(times.error());
  return times ? times->seconds : 0;
}

SwapPlan plan_of(SwapMode mode, std::int64_t forward, std::int64_t backward, Packs forward_packs,
                 Packs backward_packs) {
  return {.mode = mode,
          .gpus = 2,
          .samples = 32,
          .forward_microbatch = forward,
          .backward_microbatch = backward,
          .forward_packs = std::move(forward_packs),
          .backward_packs = std::move(backward_packs)};
}

// The schedules and seconds that msr-fiddle/harmony publishes (results/*/sched/D32_*_N2_Summary.txt).
TEST(SwapSimulator, HasThePublishedTimes) {
  const Packs bert96 = {0, 10, 20, 29, 39, 48, 58, 68, 77};
  Packs bert96_backward = bert96;
  bert96_backward.push_back(87);
  const Packs vgg = {0, 51, 111, 185, 263};
  const Packs vgg_backward = {0, 15, 31, 46, 62, 77, 99, 123, 147, 172, 200, 229, 257, 285, 313, 354};
  struct Case {
    const char* model;
    SwapPlan plan;
    double seconds;
  };
  using enum SwapMode;
  for (const Case& each : {
           Case{"bert_large", plan_of(kVPP, 8, 8, {0}, {0, 5, 15}), 4.399},
           Case{"bert_large", plan_of(kVDP, 16, 4, {0}, {0, 6}), 4.608},
           Case{"bert_96", plan_of(kVPP, 8, 8, bert96, bert96_backward), 17.874},
           Case{"bert_96", plan_of(kVDP, 8, 8, {0, 22, 43, 65}, bert96_backward), 19.421},
           Case{"gpt2_xl", plan_of(kVPP, 2, 1, {0, 10, 19, 28}, {0, 13, 25, 38}), 42.298},
           Case{"gpt2_xl", plan_of(kVDP, 2, 2, {0, 11, 22, 33}, {0, 7, 13, 19, 25, 32, 38, 44}), 43.927},
           Case{"vgg416", plan_of(kVPP, 8, 8, vgg, vgg_backward), 10.590},
           Case{"vgg416", plan_of(kVDP, 8, 8, vgg, vgg_backward), 11.878},
       }) {
    EXPECT_NEAR(seconds(each.model, each.plan), each.seconds, each.seconds * 1e-3)
        << each.model << " " << name_of(each.plan.mode);
  }
}

// What its simulator gave for packs of two layers and single samples (10 GiB, 32 samples).
TEST(SwapSimulator, HasThePublishedSimulatorsTimesOfPlansByHand) {
  struct Case {
    const char* model;
    std::size_t layers;
    std::int64_t gpus;
    double vpp, vdp;
  };
  for (const Case& each : {Case{"gpt2_10b", 54, 1, 381.7, 381.7}, Case{"gpt2_10b", 54, 2, 199.6, 215.5},
                           Case{"gpt2_10b", 54, 4, 108.1, 147.7}, Case{"gpt2_10b", 54, 8, 63.9, 144.3},
                           Case{"gpt2_40b", 204, 2, 777.5, 848.7}, Case{"gpt2_40b", 204, 8, 238.7, 563.8}}) {
    for (const SwapMode mode : {SwapMode::kVPP, SwapMode::kVDP}) {
      SwapPlan plan = plan_of(mode, 1, 1, {}, {});
      plan.gpus = each.gpus;
      for (std::size_t first = 0; first < each.layers; first += 2) {
        plan.backward_packs.push_back(first);
        if (first + 2 < each.layers) {
          plan.forward_packs.push_back(first);
        }
      }
      const double expected = mode == SwapMode::kVPP ? each.vpp : each.vdp;
      EXPECT_NEAR(seconds(each.model, plan), expected, expected * 1e-3)
          << each.model << " " << each.gpus << name_of(mode);
    }
  }
}

SwapPlan gpt2_xl_plan() {
  SwapPlan plan = plan_of(SwapMode::kVPP, 4, 4, {0, 6, 13, 20, 27, 34, 41}, {});
  plan.gpus = 4;
  plan.samples = 64;
  for (std::size_t first = 0; first < 49; first += 3) {
    plan.backward_packs.push_back(first);
  }
  return plan;
}

// Events of a stream follow each other, nothing is negative, and the last one ends the iteration.
TEST(SwapSimulator, StreamsRunOneEventAtATime) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapCosts costs(profile);
  for (const bool fixed : {false, true}) {
    for (const bool prefetch : {false, true}) {
      SwapMachine machine = published_machine();
      machine.fixed_shares = fixed;
      SwapPlan plan = gpt2_xl_plan();
      plan.prefetch = prefetch;
      std::vector<SwapEvent> timeline;
      const Result<SwapTimes> times = simulate_swap(plan, costs, machine, &timeline);
      ASSERT_TRUE(times.ok());
      std::sort(timeline.begin(), timeline.end(), [](const SwapEvent& a, const SwapEvent& b) {
        return std::tuple(a.gpu, a.stream, a.begin, a.end) < std::tuple(b.gpu, b.stream, b.begin, b.end);
      });
      double last = 0;
      for (std::size_t i = 0; i < timeline.size(); ++i) {
        const SwapEvent& event = timeline[i];
        EXPECT_LE(event.begin, event.end);
        last = std::max(last, event.end);
        if (i > 0 && timeline[i - 1].gpu == event.gpu && timeline[i - 1].stream == event.stream) {
          EXPECT_LE(timeline[i - 1].end, event.begin + 1e-9);
        }
      }
      EXPECT_DOUBLE_EQ(last, times->seconds);
    }
  }
}

// The bytes of the timeline are those of packed_volumes().
TEST(SwapSimulator, MovesWhatTheVolumesSay) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapCosts costs(profile);
  SwapMachine machine;
  machine.host_bandwidth = 1e9;
  machine.gpus_per_root = 1;
  machine.p2p_bandwidth = 1e9;
  const SwapPlan plan = gpt2_xl_plan();
  std::vector<SwapEvent> timeline;
  ASSERT_TRUE(simulate_swap(plan, costs, machine, &timeline).ok());
  double swapped = 0;
  double handed = 0;
  for (const SwapEvent& event : timeline) {
    const double bytes = (event.end - event.begin) * 1e9;
    swapped += event.stream == SwapStream::kIn || event.stream == SwapStream::kOut ? bytes : 0;
    handed += event.stream == SwapStream::kP2PIn ? bytes : 0;
  }
  const PackedVolumes volumes = packed_volumes(plan, profile, SwapRuntime::kPlimsoll);
  EXPECT_NEAR(swapped, static_cast<double>(volumes.swapped().count), 1e3);
  EXPECT_NEAR(handed, static_cast<double>(volumes.p2p.count), 1e3);
}

// Layers that stay are not among the bytes that move; the GPU updates them, and the host the others.
TEST(SwapSimulator, LayersThatStayMoveNothing) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapCosts costs(profile);
  SwapMachine machine;
  machine.host_bandwidth = 1e9;
  machine.gpus_per_root = 1;
  machine.p2p_bandwidth = 1e9;
  machine.gpu_memory_bandwidth = 484e9;
  SwapPlan plan = gpt2_xl_plan();
  plan.mirrored = true;
  const std::vector<std::int32_t> homes = homes_of_layers(plan, profile.layers());
  for (std::size_t layer = 0; layer < profile.layers(); ++layer) {
    if (homes[layer] >= 0) {
      plan.resident.push_back(layer);
    }
  }
  ASSERT_TRUE(check_plan(plan, profile.layers()).ok());
  ASSERT_GT(plan.resident.size(), 4U);
  std::vector<SwapEvent> timeline;
  ASSERT_TRUE(simulate_swap(plan, costs, machine, &timeline).ok());
  double swapped = 0;
  double on_gpus = 0;
  double on_host = 0;
  for (const SwapEvent& event : timeline) {
    const bool swaps = event.stream == SwapStream::kIn || event.stream == SwapStream::kOut;
    swapped += swaps ? (event.end - event.begin) * 1e9 : 0;
    if (event.action == SwapAction::kUpdate) {
      (event.stream == SwapStream::kHost ? on_host : on_gpus) += event.end - event.begin;
    }
  }
  const PackedVolumes volumes = packed_volumes(plan, profile, SwapRuntime::kPlimsoll);
  EXPECT_NEAR(swapped, static_cast<double>(volumes.swapped().count), 1e3);
  double expected_on_gpus = 0;
  double expected_on_host = costs.update_seconds(0, profile.layers());
  for (const std::size_t layer : plan.resident) {
    expected_on_gpus += resident_update_seconds(profile, layer, machine);
    expected_on_host -= costs.update_seconds(layer, layer + 1);
  }
  EXPECT_NEAR(on_gpus, expected_on_gpus, 1e-6);
  EXPECT_NEAR(on_host, expected_on_host, 1e-6);
  EXPECT_NEAR(resident_update_seconds(profile, 5, machine),
              static_cast<double>((profile.weights[5] * 7).count) / 484e9, 1e-9)
      << "parameters and two states read and written, gradients read";

  machine.gpu_memory_bandwidth = 0;
  EXPECT_THAT(simulate_swap(plan, costs, machine).error().message,
              HasSubstr("a bandwidth of the GPUs' memory"));
  EXPECT_THAT(simulate_swap(plan, costs, published_machine()).error().message,
              HasSubstr("resident and residentStashes must be empty"));
}

TEST(SwapSimulator, StashesThatStayTakeNoTransfers) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapCosts costs(profile);
  for (const SwapMode mode : {SwapMode::kVPP, SwapMode::kVDP}) {
    for (const bool prefetch : {false, true}) {
      SwapMachine machine;
      machine.host_bandwidth = 1e8;
      machine.gpus_per_root = 1;
      machine.p2p_bandwidth = 1e9;
      SwapPlan plan = gpt2_xl_plan();
      plan.mode = mode;
      plan.prefetch = prefetch;
      plan.mirrored = mode == SwapMode::kVPP;
      plan.forward_packs.assign(plan.backward_packs.begin(), plan.backward_packs.end() - 1);
      const double moving = simulate_swap(plan, costs, machine)->seconds;
      plan.resident_stashes = stashes_of(plan);
      ASSERT_TRUE(check_plan(plan, profile.layers()).ok());
      std::vector<SwapEvent> timeline;
      const Result<SwapTimes> times = simulate_swap(plan, costs, machine, &timeline);
      ASSERT_TRUE(times.ok()) << to_string(times.error());
      EXPECT_LE(times->seconds, moving) << name_of(mode);
      EXPECT_TRUE(prefetch || times->seconds < moving) << "nothing else runs meanwhile";
      EXPECT_TRUE(std::ranges::none_of(
          timeline, [](const SwapEvent& event) { return event.action == SwapAction::kStash; }));
      EXPECT_THAT(simulate_swap(plan, costs, published_machine()).error().message,
                  HasSubstr("residentStashes must be empty"));
    }
  }
}

TEST(SwapSimulator, SharedLinksArePutToBetterUseThanFixedShares) {
  SwapMachine machine = published_machine();
  const double fixed = seconds("gpt2_xl", gpt2_xl_plan(), machine);
  machine.fixed_shares = false;
  const double shared = seconds("gpt2_xl", gpt2_xl_plan(), machine);
  EXPECT_LT(shared, fixed);
  machine.gpus_per_root = 2;
  EXPECT_LT(seconds("gpt2_xl", gpt2_xl_plan(), machine), shared);
}

TEST(SwapSimulator, WeightsThatAreNotPinnedTakeLonger) {
  SwapMachine machine = published_machine();
  const double pinned = seconds("gpt2_xl", gpt2_xl_plan(), machine);
  machine.pinned = 14_GiB;
  machine.pageable_bandwidth = machine.host_bandwidth / 3;
  const double some = seconds("gpt2_xl", gpt2_xl_plan(), machine);
  machine.pinned = 0_B;
  const double none = seconds("gpt2_xl", gpt2_xl_plan(), machine);
  EXPECT_LT(pinned, some);
  EXPECT_LT(some, none);
}

TEST(SwapSimulator, MicrobatchesThatWereNotMeasuredAreNamed) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapCosts costs(profile);
  SwapPlan plan = gpt2_xl_plan();
  plan.backward_microbatch = 16;
  Result<SwapTimes> times = simulate_swap(plan, costs, published_machine());
  ASSERT_FALSE(times.ok());
  EXPECT_THAT(times.error().message, HasSubstr("no backward pass with microbatches of 16 samples"));
  plan.forward_microbatch = 32;
  EXPECT_THAT(simulate_swap(plan, costs, published_machine()).error().message, HasSubstr("no forward pass"));
  EXPECT_THAT(simulate_swap(gpt2_xl_plan(), costs, {}).error().message,
              HasSubstr("bandwidth between host and GPUs"));
}

}  // namespace
}  // namespace plimsoll::estimator
