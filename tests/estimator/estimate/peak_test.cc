#include "estimator/estimate/peak.h"

#include <gtest/gtest.h>

#include "estimator/fixed_costs/fixed_costs.h"

namespace plimsoll::estimator {
namespace {

// 1 GiB of parameters. Forward allocates and frees one block of 4 GiB, then allocates blocks of 1 GiB for
// backward, twice as large in the second half: the cache keeps blocks that no later request fits into.
Ledger wasteful() {
  Ledger ledger(kCudaGranule);
  ledger.allocate(Part::kParameters, 1_GiB);
  ledger.enter(Phase::kForward);
  for (int i = 1; i <= 4; ++i) {
    const BlockId growing = ledger.allocate(Part::kActivations, 1_GiB * i);
    ledger.release(growing);
  }
  return ledger;
}

GpuModel card(Bytes memory) {
  GpuModel gpu = *GpuCatalog::built_in().find("A100-40GB");
  gpu.memory = memory;
  gpu.cuda_context = 500_MiB;
  return gpu;
}

Estimate estimate_on(const GpuModel& gpu) {
  EstimateRequest request;
  request.gpu = &gpu;
  return estimate_of(wasteful(), request, 1_GiB);
}

// A GPU with enough memory keeps 1 + 1 + 2 + 3 + 4 GiB. On a GPU of 8 GiB the cache is given back in time.
TEST(Account, ACardThatIsFullMakesTheAllocatorGiveBack) {
  const Estimate roomy = estimate_on(card(40_GiB));
  EXPECT_EQ(roomy.peak.reserved, 11_GiB + 14_MiB);  // cuBLAS's 12.125 MiB; backward's come from the cache
  const Estimate tight = estimate_on(card(8_GiB));
  EXPECT_LT(tight.peak.reserved, 8_GiB);
  EXPECT_GE(tight.peak.reserved, tight.peak.allocated);
  EXPECT_LE(tight.peak.upper_bound, 8_GiB);
  EXPECT_EQ(tight.breakdown.total(), tight.peak.upper_bound);
}

// At most 5 GiB and a context are live together, which cannot fit on a GPU of 5 GiB: the result is the memory
// that it would reserve without a limit.
TEST(Account, ACardThatIsTooSmallIsToldTheWholeNeed) {
  const Estimate small = estimate_on(card(5_GiB));
  EXPECT_GT(small.peak.upper_bound, 11_GiB);
  EXPECT_EQ(small.breakdown.total(), small.peak.upper_bound);
}

TEST(Account, FitsWhereTheUpperBoundDoes) {
  const Ledger ledger = wasteful();
  int fitting = 0;
  for (std::int64_t mib = 3000; mib < 13'000; mib += 37) {
    const GpuModel gpu = card(Bytes{mib << 20});
    EstimateRequest request;
    request.gpu = &gpu;
    for (const std::optional<Bytes>& capacity :
         {std::optional<Bytes>(), std::optional(gpu.memory - 300_MiB)}) {
      request.capacity = capacity;
      KnownReplays none;
      const bool fit = fits(ledger, request, none);
      EXPECT_EQ(fit, estimate_of(ledger, request, 1_GiB).peak.upper_bound <= capacity.value_or(gpu.memory))
          << mib;
      fitting += fit ? 1 : 0;
    }
  }
  EXPECT_GT(fitting, 100);
  EXPECT_LT(fitting, 500);
}

// Cards and allocator settings one after the other, as a search asks: a replay of one is never taken for another's.
TEST(KnownReplays, AreThoseOfNewReplays) {
  const Ledger ledger = wasteful();
  KnownReplays known;
  for (const std::int64_t total : {40, 80}) {
    for (const bool expandable : {false, true}) {
      for (const Bytes split : {Bytes::max(), 1_GiB}) {
        for (const Bytes available : {12_GiB, 7_GiB, Bytes::max(), 4_GiB, 6_GiB, 11_GiB}) {
          ReplayOptions options;
          options.settings.max_split_size = split;
          options.settings.expandable_segments = expandable;
          options.device = {.available = available, .total = Bytes{total << 30}};
          options.forward_workspace = options.backward_workspace = 8_MiB;
          const ReplayResult kept = known.replay(ledger, options);
          const ReplayResult fresh = replay(ledger, options);
          EXPECT_EQ(kept.reserved_peak, fresh.reserved_peak);
          EXPECT_EQ(kept.retries, fresh.retries);
          EXPECT_EQ(kept.out_of_memory.has_value(), fresh.out_of_memory.has_value());
        }
      }
    }
  }
}

TEST(Account, TheHeadroomIsNotTheAllocators) {
  const GpuModel gpu = card(12_GiB);
  EstimateRequest request;
  request.gpu = &gpu;
  EXPECT_GT(estimate_of(wasteful(), request, 1_GiB).peak.upper_bound, 11_GiB);
  request.capacity = 8_GiB;
  EXPECT_LE(estimate_of(wasteful(), request, 1_GiB).peak.upper_bound, 8_GiB);
}

TEST(Account, TheAllocatorsOptionsCount) {
  const GpuModel gpu = card(40_GiB);
  EstimateRequest request;
  request.gpu = &gpu;
  request.runtime.allocator.expandable_segments = true;
  const Estimate expandable = estimate_of(wasteful(), request, 1_GiB);
  EXPECT_LT(expandable.peak.reserved, 5_GiB + 100_MiB);
  EXPECT_GE(expandable.peak.reserved, 5_GiB);
}

TEST(Account, EmbeddingsAddWhatTheyTake) {
  const GpuModel gpu = card(80_GiB);
  EstimateRequest request;
  request.gpu = &gpu;
  const Estimate without = estimate_of(wasteful(), request, 1_GiB);
  request.embedding_bytes = 30_GiB;
  const Estimate with = estimate_of(wasteful(), request, 1_GiB);
  EXPECT_EQ(with.peak.upper_bound, without.peak.upper_bound + 30_GiB);
  EXPECT_EQ(with.peak.reserved, without.peak.reserved + 30_GiB);
}

TEST(Account, TheCpuHasNoAllocatorOfThisKind) {
  EstimateRequest request;
  request.device = Device::kCpu;
  const Estimate estimate = estimate_of(wasteful(), request, 1_GiB);
  EXPECT_EQ(estimate.peak.allocated, 5_GiB);
  EXPECT_EQ(estimate.peak.upper_bound, 5_GiB);
}

}  // namespace
}  // namespace plimsoll::estimator
