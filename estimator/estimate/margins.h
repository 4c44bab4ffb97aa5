// margins_of(): the room that the upper bound has beyond the replayed allocator, by source of uncertainty. Each
// has its own figure and says where the figure comes from (docs/estimation.md, "The upper bound").
//
//   std::vector<Margin> margins = margins_of(request, ledger, breakdown, convolutions);
//
// Pure; any thread.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "estimator/kernels/convolution.h"
#include "estimator/ledger/ledger.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline estimate {

// Shares of memory, chosen on the development runs of tests/accuracy/published_gpu.json and on torchtitan's rows
// (tests/estimator/estimate/torchtitan.csv), and checked on the drawn runs.
inline constexpr double kSimulationMargin = 0.12;  // of gradients, activations and temporaries
inline constexpr double kKeptCastsMargin = 0.12;   // of the same, with experts, checkpointing and autocast
inline constexpr double kCudnnMargin = 0.08;       // of what convolutions of forward read and write

// One more segment of each of the allocator's pools (c10/cuda/CUDACachingAllocator.cpp: kSmallBuffer, kLargeBuffer).
inline constexpr Bytes kSegmentOfEachPool = 22_MiB;

// For CUDA. `parts` at the peak; `convolutions`: those of one forward pass. Sources that a request excludes are not
// listed: without convolutions there is no margin for cuDNN.
std::vector<Margin> margins_of(const EstimateRequest& request, const Ledger& ledger, const Breakdown& parts,
                               const ConvolutionTotals& convolutions);

Bytes total_of(const std::vector<Margin>& margins);

}  // namespace plimsoll::estimator::estimate
