#include "estimator/swap/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "estimator/swap/simulator.h"
#include "tests/estimator/swap/published_profile.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

using ::testing::HasSubstr;
using Layers = std::vector<std::size_t>;

constexpr double kGiB = 1024.0 * 1024 * 1024;

SwapRequest request_for(const SwapProfile& profile, SwapMode mode, std::int64_t gpus, std::int64_t samples,
                        double capacity) {
  SwapRequest request;
  request.profile = &profile;
  request.gpus = gpus;
  request.samples = samples;
  request.capacity = Bytes{static_cast<std::int64_t>(capacity)};
  request.machine = published_machine();
  request.mode = mode;
  request.prefetch = false;
  return request;
}

SwapProfile some_layers(const SwapProfile& whole, const Layers& layers) {
  SwapProfile part;
  part.forward = whole.forward;
  part.backward = whole.backward;
  for (std::vector<SwapPass>* passes : {&part.forward, &part.backward}) {
    for (SwapPass& pass : *passes) {
      const SwapPass all = pass;
      pass.seconds.clear();
      pass.memory.clear();
      for (const std::size_t layer : layers) {
        pass.seconds.push_back(all.seconds[layer]);
        pass.memory.push_back(all.memory[layer]);
      }
    }
  }
  for (const std::size_t layer : layers) {
    part.weights.push_back(whole.weights[layer]);
    part.buffers.push_back(whole.buffers[layer]);
    part.state.push_back(whole.state[layer]);
    part.input.push_back(whole.input[layer]);
    part.update_seconds.push_back(whole.update_seconds[layer]);
  }
  return part;
}

// All ways to cut `layers` layers.
std::vector<Layers> cuts(std::size_t layers) {
  if (layers == 0) {
    return {{}};
  }
  std::vector<Layers> all;
  for (std::size_t bits = 0; bits < std::size_t{1} << (layers - 1); ++bits) {
    Layers packs{0};
    for (std::size_t i = 1; i < layers; ++i) {
      if ((bits >> (i - 1)) & 1) {
        packs.push_back(i);
      }
    }
    all.push_back(packs);
  }
  return all;
}

double fastest_of_all(const SwapRequest& request) {
  const std::size_t layers = request.profile->layers();
  SwapCosts costs(*request.profile);
  double best = std::numeric_limits<double>::infinity();
  const std::int64_t samples =
      request.mode == SwapMode::kVDP ? request.samples / request.gpus : request.samples;
  for (std::int64_t forward = 1; forward <= samples; forward *= 2) {
    for (std::int64_t backward = 1; backward <= samples; backward *= 2) {
      if (forward != backward && request.machine.runtime == SwapRuntime::kPlimsoll) {
        continue;  // it runs both passes in the smaller one
      }
      SwapPlan plan{.mode = *request.mode,
                    .gpus = request.gpus,
                    .samples = request.samples,
                    .forward_microbatch = forward,
                    .backward_microbatch = backward,
                    .forward_packs = {},
                    .backward_packs = {}};
      for (const Layers& backward_packs : cuts(layers)) {
        plan.backward_packs = backward_packs;
        for (const Layers& forward_packs : cuts(backward_packs.back())) {
          plan.forward_packs = forward_packs;
          if (device_memory(plan, costs, request.machine.runtime) <= request.capacity) {
            const Result<SwapTimes> times = simulate_swap(plan, costs, request.machine);
            best = std::min(best, times ? times->seconds : best);
          }
        }
      }
    }
  }
  return best;
}

// The published schedules (msr-fiddle/harmony, results/*/sched), those that its simulator was run on by hand, and what hill climbing
// over their packs reached.
TEST(SwapPlanner, IsNotSlowerThanThePublishedPlansNorThanThoseThatWereClimbedTo) {
  struct Case {
    const char* model;
    SwapMode mode;
    std::int64_t gpus, samples;
    double capacity, published, climbed;
  };
  using enum SwapMode;
  for (const Case& each : {
           Case{"bert_large", kVPP, 2, 32, 10 * kGiB, 4.399, 4.160},
           Case{"bert_large", kVDP, 2, 32, 10 * kGiB, 4.608, 4.557},
           Case{"bert_96", kVPP, 2, 32, 10 * kGiB, 17.874, 17.235},
           Case{"bert_96", kVDP, 2, 32, 10 * kGiB, 19.421, 19.421},
           Case{"gpt2_xl", kVPP, 2, 32, 10 * kGiB, 42.298, 42.298},
           Case{"gpt2_xl", kVDP, 2, 32, 10 * kGiB, 43.927, 43.927},
           Case{"vgg416", kVPP, 2, 32, 10 * kGiB, 10.590, 10.590},
           Case{"vgg416", kVDP, 2, 32, 10 * kGiB, 11.878, 11.878},
           Case{"gpt2_xl", kVPP, 4, 64, 9e9, 42.595, 42.211},
           Case{"gpt2_40b", kVPP, 8, 32, 10 * kGiB, 238.7, 238.7},
           Case{"gpt2_10b", kVDP, 4, 32, 10 * kGiB, 147.7, 147.7},
       }) {
    const SwapProfile profile = testing::published_profile(each.model);
    const SwapRequest request = request_for(profile, each.mode, each.gpus, each.samples, each.capacity);
    const Result<PlannedSwap> planned = plan_swap(request);
    const std::string name = std::string(each.model) + " " + name_of(each.mode);
    ASSERT_TRUE(planned.ok()) << name << ": " << to_string(planned.error());
    EXPECT_LE(planned->seconds, each.published) << name;
    EXPECT_LE(planned->seconds, each.climbed * 1.0002) << name << ": published with three digits";
    EXPECT_LE(planned->bound_seconds, planned->seconds) << name;
    EXPECT_GE(planned->bound_seconds, planned->seconds * 0.8) << name;
    EXPECT_LE(planned->device_memory, request.capacity) << name;
    EXPECT_TRUE(check_plan(planned->plan, profile.layers()).ok()) << name;
    const Result<PlannedSwap> again = plan_swap(request);
    EXPECT_EQ(again->plan.backward_packs, planned->plan.backward_packs) << name << " is deterministic";
    EXPECT_EQ(again->plan.forward_packs, planned->plan.forward_packs);
  }
}

TEST(SwapPlanner, IsWithinHalfAPercentOfAllPlansOfSmallModels) {
  struct Case {
    const char* model;
    SwapMode mode;
    Layers layers;
    double capacity, published;
  };
  using enum SwapMode;
  for (const Case& each : {Case{"bert_large", kVPP, {0, 1, 2, 3, 25, 26, 27}, 1.6e9, 0.3713},
                           Case{"bert_large", kVDP, {0, 1, 2, 25, 26, 27}, 1.2e9, 0.3598},
                           Case{"gpt2_xl", kVPP, {0, 1, 2, 3, 49, 50, 51}, 2.0e9, 1.4648},
                           Case{"gpt2_xl", kVDP, {0, 1, 2, 3, 49, 50, 51}, 2.0e9, 1e9},
                           Case{"bert_96", kVPP, {0, 1, 2, 3, 4, 5, 98, 99}, 1.2e9, 1e9}}) {
    const SwapProfile profile = some_layers(testing::published_profile(each.model), each.layers);
    SwapRequest request = request_for(profile, each.mode, 2, 8, each.capacity);
    for (const SwapRuntime runtime : {SwapRuntime::kPublished, SwapRuntime::kPlimsoll}) {
      request.machine.runtime = runtime;
      const double best = fastest_of_all(request);
      const Result<PlannedSwap> planned = plan_swap(request);
      ASSERT_TRUE(planned.ok()) << each.model << ": " << to_string(planned.error());
      EXPECT_LE(planned->seconds, best * 1.005) << each.model << " " << name_of(each.mode);
      EXPECT_LE(planned->bound_seconds, best) << each.model << " " << name_of(each.mode);
      if (runtime == SwapRuntime::kPublished) {
        EXPECT_LE(best, each.published * 1.0002) << each.model << " " << name_of(each.mode);
      }
    }
  }
}

TEST(SwapPlanner, EachPrincipleThatIsLeftOutCosts) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapRequest request = request_for(profile, SwapMode::kVPP, 4, 64, 10 * kGiB);
  const double all = plan_swap(request)->seconds;
  for (bool SwapPrinciples::*const principle : {&SwapPrinciples::group, &SwapPrinciples::just_in_time,
                                                &SwapPrinciples::peer_to_peer, &SwapPrinciples::balance}) {
    request.machine.principles = {};
    request.machine.principles.*principle = false;
    const Result<PlannedSwap> planned = plan_swap(request);
    ASSERT_TRUE(planned.ok());
    EXPECT_GT(planned->seconds, all * 1.001);
    EXPECT_LE(planned->bound_seconds, planned->seconds);
  }
}

TEST(SwapPlanner, OfPlimsollsRuntimeCountsWhatTasksAreHanded) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapRequest request = request_for(profile, SwapMode::kVPP, 4, 64, 6e9);
  request.machine.runtime = SwapRuntime::kPlimsoll;
  request.machine.fixed_shares = false;
  request.prefetch = std::nullopt;
  const Result<PlannedSwap> planned = plan_swap(request);
  ASSERT_TRUE(planned.ok()) << to_string(planned.error());
  EXPECT_LE(planned->device_memory, request.capacity);
  EXPECT_GT(planned->device_memory, 4_GiB) << "packs use the memory";
  EXPECT_LE(planned->bound_seconds, planned->seconds);
  EXPECT_EQ(planned->host.optimizer, 13'104'179'200_B);
  EXPECT_EQ(planned->plan.forward_microbatch, planned->plan.backward_microbatch);
}

SwapRequest request_of_plimsoll(const SwapProfile& profile, std::int64_t gpus, double capacity) {
  SwapRequest request = request_for(profile, SwapMode::kVPP, gpus, 64, capacity);
  request.machine.runtime = SwapRuntime::kPlimsoll;
  request.machine.fixed_shares = false;
  request.machine.task_seconds = 0;
  request.machine.host_bandwidth = 2e9;
  request.machine.gpu_memory_bandwidth = 484e9;
  request.prefetch = std::nullopt;
  return request;
}

// The more memory there is, the more layers stay; without transfers and updates on the host, the iteration is little more than what is
// computed.
TEST(SwapPlanner, LayersForWhichThereIsMemoryStayOnTheirGpu) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  double before = std::numeric_limits<double>::infinity();
  std::size_t staying = 0;
  for (const double capacity : {6e9, 9e9, 12e9, 16e9}) {
    SwapRequest request = request_of_plimsoll(profile, 4, capacity);
    const Result<PlannedSwap> planned = plan_swap(request);
    ASSERT_TRUE(planned.ok()) << to_string(planned.error());
    EXPECT_LE(planned->device_memory, request.capacity);
    EXPECT_LE(planned->bound_seconds, planned->seconds);
    EXPECT_GE(planned->plan.resident.size(), staying);
    EXPECT_LE(planned->seconds, before * 1.01);
    before = planned->seconds;
    staying = planned->plan.resident.size();
    request.machine.principles.stay = false;
    const Result<PlannedSwap> swapped = plan_swap(request);
    EXPECT_LE(planned->seconds, swapped->seconds * 1.0001) << capacity;
    EXPECT_TRUE(swapped->plan.resident.empty());
  }
  EXPECT_EQ(staying, 51U) << "all layers with weights";
}

// The host then has neither their gradients nor their optimizer: a host that is too small for all layers' was refused.
TEST(SwapPlanner, LayersThatStayMayMakeAPlanFitTheHost) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapRequest request = request_of_plimsoll(profile, 4, 16e9);
  request.host_memory = host_memory_of_model(profile).total() - 8_GiB;
  const Result<PlannedSwap> planned = plan_swap(request);
  ASSERT_TRUE(planned.ok()) << to_string(planned.error());
  EXPECT_LE(planned->host.total(), request.host_memory);
  EXPECT_FALSE(planned->plan.resident.empty());
  request.mode = SwapMode::kVDP;
  EXPECT_THAT(plan_swap(request).error().message,
              HasSubstr("the model, its gradients and its optimizer take"));
  request.mode = SwapMode::kVPP;
  request.host_memory = 1_GiB;
  EXPECT_FALSE(plan_swap(request).ok()) << "the model itself exceeds it";
}

// Also where no layer may stay, and where their transfers take no time of their own: they take less of the host and its links.
TEST(SwapPlanner, StashesForWhichThereIsMemoryStayOnTheirGpu) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  for (const SwapMode mode : {SwapMode::kVPP, SwapMode::kVDP}) {
    SwapRequest request = request_of_plimsoll(profile, 1, 10e9);
    request.mode = mode;
    request.samples = 16;
    request.machine.gpu_memory_bandwidth = 0;
    const Result<PlannedSwap> planned = plan_swap(request);
    ASSERT_TRUE(planned.ok()) << to_string(planned.error());
    EXPECT_FALSE(planned->plan.resident_stashes.empty());
    EXPECT_TRUE(check_plan(planned->plan, profile.layers()).ok());
    EXPECT_LE(planned->device_memory, request.capacity);
    EXPECT_LE(planned->bound_seconds, planned->seconds);
    request.machine.principles.stay = false;
    const Result<PlannedSwap> moving = plan_swap(request);
    ASSERT_TRUE(moving.ok());
    EXPECT_LE(planned->seconds, moving->seconds);
    EXPECT_TRUE(moving->plan.resident_stashes.empty());
    EXPECT_LT(planned->volumes.stash, moving->volumes.stash);
    EXPECT_LT(planned->host.stash, moving->host.stash);
  }
}

TEST(SwapPlanner, LayersThatShareAParameterDoNotStay) {
  SwapProfile profile = testing::published_profile("gpt2_xl");
  profile.tied = {0, 51};
  const Result<PlannedSwap> planned = plan_swap(request_of_plimsoll(profile, 2, 40e9));
  ASSERT_TRUE(planned.ok()) << to_string(planned.error());
  EXPECT_GT(planned->plan.resident.size(), 20U);
  EXPECT_FALSE(std::ranges::binary_search(planned->plan.resident, 0U));
  EXPECT_FALSE(std::ranges::binary_search(planned->plan.resident, 51U));
}

TEST(SwapPlanner, NoLayerStaysWhereTheGpusMemoryIsOfUnknownSpeed) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapRequest request = request_of_plimsoll(profile, 2, 40e9);
  request.machine.gpu_memory_bandwidth = 0;
  const Result<PlannedSwap> planned = plan_swap(request);
  ASSERT_TRUE(planned.ok()) << to_string(planned.error());
  EXPECT_TRUE(planned->plan.resident.empty());
}

// A small GPT as plimsoll.harmony.profile measures it, with times of a machine that is busy with other work, too.
SwapProfile with_noise(std::mt19937_64& random) {
  std::lognormal_distribution<double> noise;
  constexpr std::size_t kLayers = 8;
  SwapProfile profile;
  profile.weights.assign(kLayers, 133'888_B);
  profile.buffers.assign(kLayers, 0_B);
  profile.state.assign(kLayers, 267'776_B);
  profile.input.assign(kLayers, 4'096_B);
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    profile.update_seconds.push_back(5e-4 * noise(random));
  }
  const auto pass = [&](std::int64_t microbatch, double seconds, Bytes memory) {
    SwapPass measured{.microbatch = microbatch, .seconds = {}, .memory = std::vector<Bytes>(kLayers, memory)};
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      measured.seconds.push_back(seconds * noise(random));
    }
    return measured;
  };
  profile.forward = {pass(1, 9e-4, 175'104_B), pass(2, 9e-4, 216'064_B)};
  profile.backward = {pass(1, 25e-4, 379'136_B), pass(2, 27e-4, 457'216_B)};
  return profile;
}

// A step of the search that removed forward packs was followed by one that merged two of those, beyond the end of the packs.
TEST(SwapPlanner, PacksThatAnEarlierStepRemovedAreNotMerged) {
  const auto seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 200; ++i) {
    const SwapProfile profile = with_noise(random);
    SwapRequest request =
        request_for(profile, SwapMode::kVPP, i % 2 == 0 ? 4 : 2, 8, i % 3 == 0 ? 557'525 : 600'000);
    request.machine.runtime = i % 4 == 0 ? SwapRuntime::kPublished : SwapRuntime::kPlimsoll;
    request.machine.fixed_shares = false;
    const Result<PlannedSwap> planned = plan_swap(request);
    ASSERT_TRUE(planned.ok()) << to_string(planned.error());
    EXPECT_TRUE(check_plan(planned->plan, profile.layers()).ok());
    EXPECT_LE(planned->device_memory, request.capacity);
    EXPECT_LE(planned->bound_seconds, planned->seconds);
  }
}

TEST(SwapPlanner, ALayerThatExceedsAGpuIsNamed) {
  const SwapProfile profile = testing::published_profile("gpt2_40b");
  const Result<PlannedSwap> planned = plan_swap(request_for(profile, SwapMode::kVPP, 4, 8, 2e9));
  ASSERT_FALSE(planned.ok());
  EXPECT_EQ(planned.error().code, ErrorCode::kUnfittable);
  EXPECT_THAT(planned.error().message, HasSubstr("no plan fits: layer"));
  EXPECT_THAT(planned.error().message, HasSubstr("alone takes"));
}

TEST(SwapPlanner, WrongRequestsAreRefused) {
  const SwapProfile profile = testing::published_profile("bert_large");
  const auto refusal = [](const SwapRequest& request) {
    const Result<PlannedSwap> planned = plan_swap(request);
    return planned ? std::string() : planned.error().message;
  };
  SwapRequest request = request_for(profile, SwapMode::kVDP, 2, 3, 10 * kGiB);
  EXPECT_THAT(refusal(request), HasSubstr("vDP needs a batch that is a multiple of the 2 GPUs"));
  request.samples = 0;
  EXPECT_THAT(refusal(request), HasSubstr("the batch must have from 1"));
  request.gpus = 0;
  EXPECT_THAT(refusal(request), HasSubstr("gpus must be from 1 to 64"));
  request = request_for(profile, SwapMode::kVDP, 2, 4, 10 * kGiB);
  request.machine.host_bandwidth = 0;
  EXPECT_THAT(refusal(request), HasSubstr("a bandwidth between host and GPUs above 0"));
  SwapProfile sizes_alone = profile;
  sizes_alone.forward.clear();
  request = request_for(sizes_alone, SwapMode::kVDP, 2, 4, 10 * kGiB);
  EXPECT_THAT(refusal(request), HasSubstr("the profile has no times"));
}

TEST(SwapPlanner, EndsWithItsBudgetAndTellsItsProgress) {
  const SwapProfile profile = testing::published_profile("gpt2_40b");
  SwapRequest request = request_for(profile, SwapMode::kVPP, 8, 32, 10 * kGiB);
  double last = -1;
  request.progress = [&](double share, double) {
    EXPECT_GE(share, last);
    EXPECT_LE(share, 1);
    last = share;
  };
  EXPECT_TRUE(plan_swap(request).ok());
  EXPECT_GT(last, 0.5);
  Budget budget({.work = 2000});
  request.budget = &budget;
  const Result<PlannedSwap> planned = budget.run([&] { return plan_swap(request); });
  ASSERT_FALSE(planned.ok());
  EXPECT_EQ(planned.error().code, ErrorCode::kTooLarge);
}

TEST(SwapPlanner, APlanThatIsNoFasterIsOfNoUse) {
  const SwapProfile profile = testing::published_profile("bert_large");
  SwapRequest request;
  request.profile = &profile;
  request.gpus = 2;
  request.samples = 32;
  request.capacity = 10_GiB;
  request.machine = published_machine();
  request.mode = SwapMode::kVPP;
  request.seconds_to_beat = 1;
  const Result<PlannedSwap> planned = plan_swap(request);
  ASSERT_FALSE(planned.ok());
  EXPECT_EQ(planned.error().code, ErrorCode::kUnfittable);
  request.seconds_to_beat = 10;
  EXPECT_TRUE(plan_swap(request).ok());
}

// Stashes are what a plan can have fewer of; the model, its gradients and its optimizer are there in any case.
TEST(SwapPlanner, KeepsWithinTheHostsMemory) {
  const SwapProfile profile = testing::published_profile("gpt2_xl");
  SwapRequest request = request_for(profile, SwapMode::kVPP, 4, 64, 10 * kGiB);
  const Result<PlannedSwap> free = plan_swap(request);
  ASSERT_TRUE(free.ok());
  ASSERT_GT(free->host.stash, Bytes{});
  request.host_memory = free->host.total() - Bytes{1};
  const Result<PlannedSwap> bounded = plan_swap(request);
  ASSERT_TRUE(bounded.ok()) << to_string(bounded.error());
  EXPECT_LE(bounded->host.total(), request.host_memory);
  EXPECT_GE(bounded->seconds, free->bound_seconds);

  request.host_memory = host_memory_of_model(profile).total();
  const Result<PlannedSwap> stashes = plan_swap(request);
  ASSERT_FALSE(stashes.ok());
  EXPECT_EQ(stashes.error().code, ErrorCode::kUnfittable);
  EXPECT_THAT(stashes.error().message, HasSubstr("the plan with the fewest stashes takes"));

  request.host_memory = Bytes{static_cast<std::int64_t>(kGiB)};
  const Result<PlannedSwap> none = plan_swap(request);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("the model, its gradients and its optimizer take"));
}

}  // namespace
}  // namespace plimsoll::estimator
