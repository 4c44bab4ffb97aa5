#include "estimator/allocator/replay.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <random>

#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

constexpr std::int64_t kGranule = 512;

// One layer: a weight, its optimizer state of twice the size, an activation of `activation`, and a gradient.
Ledger one_layer(Bytes weight, Bytes activation, Bytes state) {
  Ledger ledger(kGranule);
  ledger.allocate(Part::kParameters, weight);
  ledger.allocate(Part::kOptimizerState, state);
  ledger.allocate(Part::kInputs, 4_MiB);
  ledger.enter(Phase::kForward);
  const BlockId out = ledger.allocate(Part::kActivations, activation);
  ledger.enter(Phase::kBackward);
  ledger.allocate(Part::kGradients, weight);
  ledger.release(out);
  ledger.enter(Phase::kOptimizerStep);
  return ledger;
}

// 40 MiB of weight, 100 MiB of activation. The first step allocates 80 MiB of state in the free segment of
// the activation; so the second forward needs 100 MiB more, although at most 160 + 40 (gradient) + 4 MiB are
// live.
TEST(AllocatorReplay, StateThatIsMadeInTheFirstStepFragmentsTheCache) {
  const Ledger ledger = one_layer(40_MiB, 100_MiB, 80_MiB);
  EXPECT_EQ(ledger.peak(), 264_MiB);
  const ReplayResult result = replay(ledger, {});
  // weight 40, inputs 20 for 4, activation 100, gradient 40, activation again 100.
  EXPECT_EQ(result.reserved_peak, 300_MiB);
  EXPECT_EQ(result.allocated_peak, 264_MiB);
  EXPECT_EQ(result.fragmentation(), 36_MiB);
  EXPECT_EQ(result.iterations, 3);
  EXPECT_FALSE(result.out_of_memory.has_value());
  // With expandable segments the gap is filled: 264 MiB in pages of 20.
  ReplayOptions expandable;
  expandable.settings.expandable_segments = true;
  EXPECT_EQ(replay(ledger, expandable).reserved_peak, 280_MiB);
}

TEST(AllocatorReplay, TwoBatchesMeetWhereTheLoaderBringsThem) {
  Ledger ledger(kGranule);
  ledger.allocate(Part::kInputs, 100_MiB);
  ledger.enter(Phase::kForward);
  ledger.release(ledger.allocate(Part::kActivations, 40_MiB));
  EXPECT_EQ(replay(ledger, {}).reserved_peak, 140_MiB);
  ReplayOptions options;
  options.next_batch_early = true;
  EXPECT_EQ(replay(ledger, options).reserved_peak, 240_MiB);
  options.iterations = 1;
  EXPECT_EQ(replay(ledger, options).reserved_peak, 140_MiB);
}

// 60 MiB come from the free 100 MiB that the larger batch left, whose rest is too small for the next 80.
TEST(AllocatorReplay, BatchesOfOtherSizesRunAfterwards) {
  const Ledger usual = one_layer(40_MiB, 100_MiB, {});
  const Ledger smaller = one_layer(40_MiB, 60_MiB, {});
  const Bytes alone = replay(usual, {}).reserved_peak;
  const Ledger* const afterwards[] = {&smaller, &usual};
  ReplayOptions options;
  options.afterwards = afterwards;
  const ReplayResult result = replay(usual, options);
  EXPECT_GE(result.reserved_peak, alone);
  EXPECT_EQ(result.allocated_peak, usual.peak()) << "parameters are not allocated twice";
  EXPECT_EQ(result.iterations, replay(usual, {}).iterations + 2);
}

TEST(AllocatorReplay, GradientsStayDuringValidation) {
  const Ledger usual = one_layer(40_MiB, 20_MiB, {});
  Ledger validation(kGranule);
  validation.allocate(Part::kParameters, 40_MiB);
  validation.allocate(Part::kInputs, 4_MiB);
  validation.allocate(Part::kGradients, 40_MiB);
  validation.enter(Phase::kForward);
  validation.release(validation.allocate(Part::kActivations, 200_MiB));
  const Ledger* const afterwards[] = {&validation, &usual};
  ReplayOptions options;
  options.afterwards = afterwards;
  EXPECT_EQ(replay(usual, options).allocated_peak, 284_MiB) << "weight, gradient, input and activation";
}

TEST(AllocatorReplay, SaysWhereMemoryEnds) {
  const Ledger ledger = one_layer(40_MiB, 100_MiB, 80_MiB);
  ReplayOptions options;
  options.device = {.available = 300_MiB, .total = 300_MiB};
  EXPECT_FALSE(replay(ledger, options).out_of_memory.has_value());
  // The second forward gets its 100 MiB after the gradient's 40 were given back, which backward then lacks.
  options.device.available = 298_MiB;
  const ReplayResult result = replay(ledger, options);
  ASSERT_TRUE(result.out_of_memory.has_value());
  EXPECT_EQ(result.out_of_memory->iteration, 1);
  EXPECT_EQ(result.out_of_memory->event, ledger.begin_of(Phase::kBackward));
  EXPECT_EQ(result.out_of_memory->requested, 40_MiB);
  EXPECT_EQ(ledger.blocks()[static_cast<std::size_t>(result.out_of_memory->block)].part, Part::kGradients);
  EXPECT_EQ(result.retries, 2);
  EXPECT_LE(result.reserved_peak, 298_MiB);
  options.device.available = 30_MiB;
  EXPECT_EQ(replay(ledger, options).out_of_memory->iteration, -1);
}

TEST(AllocatorReplay, WorkspacesStay) {
  const Ledger ledger = one_layer(40_MiB, 100_MiB, 0_B);
  ReplayOptions options;
  options.forward_workspace = 32_MiB;
  options.backward_workspace = 32_MiB;
  EXPECT_EQ(replay(ledger, options).allocated_peak, replay(ledger, {}).allocated_peak + 64_MiB);
}

// cuDNN continues without a workspace that cannot be allocated, but first the cache is emptied for it.
TEST(AllocatorReplay, GoesWithoutWhatCanBeDispensedWith) {
  Ledger ledger(kGranule);
  ledger.allocate(Part::kParameters, 40_MiB);
  ledger.enter(Phase::kForward);
  ledger.release(ledger.allocate(Part::kActivations, 30_MiB));
  ledger.release(ledger.allocate_dispensable(Part::kTemporaries, 80_MiB));
  ledger.allocate(Part::kActivations, 50_MiB);
  EXPECT_EQ(ledger.peak(), 120_MiB);
  ReplayOptions options;
  options.iterations = 1;
  EXPECT_EQ(replay(ledger, options).reserved_peak, 150_MiB);  // 40 + 30 + 80; the 50 are a part of the 80
  options.device.available = 100_MiB;
  const ReplayResult result = replay(ledger, options);
  EXPECT_FALSE(result.out_of_memory.has_value());
  EXPECT_EQ(result.retries, 1);
  EXPECT_EQ(result.reserved_peak, 90_MiB);
  EXPECT_EQ(result.reserved, 90_MiB);
}

// A block allocated before an iteration and freed in it (a gathered layer) is allocated again for the next.
TEST(AllocatorReplay, WhatAnIterationReleasesComesBack) {
  Ledger ledger(kGranule);
  const BlockId gathered = ledger.allocate(Part::kTemporaries, 100_MiB);
  ledger.enter(Phase::kForward);
  const BlockId before = ledger.allocate(Part::kActivations, 30_MiB);
  ledger.release(gathered);
  ledger.allocate(Part::kActivations, 50_MiB);
  ledger.release(before);
  const ReplayResult result = replay(ledger, {});
  EXPECT_GE(result.reserved_peak, 130_MiB);
  EXPECT_GE(result.allocated_peak, 130_MiB);
}

TEST(AllocatorReplay, ManyEqualBlocksAreReplayedAsHeaps) {
  Ledger ledger(kGranule);
  ledger.allocate(Part::kParameters, 3000_B, 100'000);
  ledger.enter(Phase::kForward);
  const ReplayResult result = replay(ledger, {});
  EXPECT_GE(result.allocated_peak, ledger.peak());
  EXPECT_LE(result.reserved_peak.count, ledger.peak().count + ledger.peak().count / 10);
}

TEST(AllocatorReplay, AnEmptyLedgerReservesNothing) {
  const ReplayResult result = replay(Ledger(kGranule), {});
  EXPECT_EQ(result.reserved_peak, 0_B);
  EXPECT_EQ(result.segments, 0);
}

// A random network: forward keeps a share of its blocks, backward frees them in reverse order.
Ledger random_training(std::mt19937_64& random, std::size_t layers) {
  Ledger ledger(kGranule);
  const auto size = [&] {
    return Bytes{static_cast<std::int64_t>(random() % (std::uint64_t{1} << (8 + random() % 18)))};
  };
  for (std::size_t i = 0; i < layers; ++i) {
    const Bytes weight = size();
    ledger.allocate(Part::kParameters, weight);
    ledger.allocate(Part::kOptimizerState, weight * 2);
  }
  ledger.enter(Phase::kForward);
  std::vector<BlockId> kept;
  for (std::size_t i = 0; i < layers; ++i) {
    kept.push_back(ledger.allocate(Part::kActivations, size()));
    const BlockId temporary = ledger.allocate(Part::kTemporaries, size());
    if (random() % 3 == 0) {
      kept.push_back(temporary);
    } else {
      ledger.release(temporary);
    }
  }
  ledger.enter(Phase::kBackward);
  while (!kept.empty()) {
    ledger.allocate(Part::kGradients, size());
    ledger.release(kept.back());
    kept.pop_back();
  }
  ledger.enter(Phase::kOptimizerStep);
  return ledger;
}

TEST(AllocatorReplay, ReservedIsNeverBelowAllocatedNorAllocatedBelowTheLedger) {
  const unsigned seed = plimsoll::testing::random_seed();
  std::mt19937_64 random(seed);
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + " round " + std::to_string(round));
    const Ledger ledger = random_training(random, 1 + random() % 60);
    ReplayOptions options;
    options.settings.expandable_segments = round % 3 == 0;
    const ReplayResult free = replay(ledger, options);
    EXPECT_GE(free.reserved_peak, free.allocated_peak);
    EXPECT_GE(free.allocated_peak, ledger.peak());
    EXPECT_EQ(replay(ledger, options).reserved_peak, free.reserved_peak) << "not deterministic";
    // A limit equal to the unlimited peak is enough; a limit below the live memory is not.
    options.device.available = free.reserved_peak;
    const ReplayResult same = replay(ledger, options);
    EXPECT_FALSE(same.out_of_memory.has_value());
    EXPECT_EQ(same.reserved_peak, free.reserved_peak);
    options.device.available = ledger.peak() - 1_B;
    EXPECT_TRUE(replay(ledger, options).out_of_memory.has_value());
  }
}

// It runs inside an admission. The time is printed but not asserted.
TEST(AllocatorReplay, IsCheap) {
  std::mt19937_64 random(1);
  for (const std::size_t layers : {100U, 1000U, 10'000U, 40'000U}) {
    const Ledger ledger = random_training(random, layers);
    const auto begin = std::chrono::steady_clock::now();
    const ReplayResult result = replay(ledger, {});
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    const double events = static_cast<double>(ledger.events().size()) * result.iterations;
    std::printf("%zu events, %d iterations: %.2f ms, %.0f ns an event, %s in %lld segments\n",
                ledger.events().size(), result.iterations, took.count(), took.count() * 1e6 / events,
                to_string(result.reserved_peak).c_str(), static_cast<long long>(result.segments));
    EXPECT_FALSE(result.out_of_memory.has_value());
  }
}

}  // namespace
}  // namespace plimsoll::estimator
