// estimate_of(): the estimate from the events of one simulated iteration: memory of the tensors, memory that
// the framework's allocator reserves for them on this GPU, and the upper bound for a safe run. Specs and
// exported graphs both use it. Pure; any thread.
//
//   Estimate estimate = estimate_of(ledger, request, dense_parameters);
#pragma once

#include <vector>

#include "base/bytes.h"
#include "estimator/allocator/replay.h"
#include "estimator/kernels/convolution.h"
#include "estimator/ledger/ledger.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline estimate {

// Replays of one ledger in the same training loop. One to which the driver refused nothing is that of any GPU with as much
// memory. Not thread-safe.
class KnownReplays {
 public:
  ReplayResult replay(const Ledger& ledger, const ReplayOptions& options);

  // What the loop runs after the ledger's iterations (ReplayOptions::afterwards).
  void set_afterwards(std::vector<const Ledger*> afterwards) { afterwards_ = std::move(afterwards); }
  const std::vector<const Ledger*>& afterwards() const { return afterwards_; }
  // The ledger with the highest peak: this one, or one that runs afterwards.
  const Ledger& highest(const Ledger& ledger) const;

 private:
  struct Known {
    AllocatorSettings settings;
    Bytes total;
    Bytes forward_workspace;
    Bytes backward_workspace;
    Bytes available;
    ReplayResult result;

    bool is_of(const ReplayOptions& options) const;
  };
  std::vector<Known> known_;
  std::vector<const Ledger*> afterwards_;
};

// On CUDA, the reserved memory is the result of an allocator replay. If the GPU has less memory than the
// allocator would reserve, the replay runs again with the GPU's memory: cached blocks are then given back,
// and only if that is not enough does the trainer not fit; the bound is then the whole card, because the cache may
// fill it. `known`: replays of this ledger.
// `convolutions`: those of one forward pass (margins.h).
Estimate estimate_of(const Ledger& ledger, const EstimateRequest& request, Bytes dense_parameters,
                     KnownReplays& known, const ConvolutionTotals& convolutions = {});
Estimate estimate_of(const Ledger& ledger, const EstimateRequest& request, Bytes dense_parameters,
                     const ConvolutionTotals& convolutions = {});

// Whether the upper bound of that estimate is at most request.capacity, or the GPU's memory without it. Ends at the
// first allocation that fails.
bool fits(const Ledger& ledger, const EstimateRequest& request, KnownReplays& known,
          const ConvolutionTotals& convolutions = {});

// The parts of the live memory at a moment.
Breakdown breakdown_of(const Ledger::Moment& moment);

// The same for parts that are given, not simulated (AMP's formula): without replay and margin.
Estimate estimate_of(const Breakdown& parts, const EstimateRequest& request, const char* phase,
                     Bytes dense_parameters);

// The estimate of a model whose tensors exceed the memory of any machine.
Estimate estimate_beyond_any_machine(const EstimateRequest& request, Bytes dense_parameters);

}  // namespace plimsoll::estimator::estimate
