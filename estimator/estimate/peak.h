// estimate_of(): the estimate from the events of one simulated iteration: memory of the tensors, memory that
// the framework's allocator reserves for them on this GPU, and the upper bound for a safe run. Specs and
// exported graphs both use it. Pure; any thread.
//
//   Estimate estimate = estimate_of(ledger, request, dense_parameters);
#pragma once

#include <tuple>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "estimator/allocator/replay.h"
#include "estimator/ledger/ledger.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline estimate {

// Replays of one ledger with the same allocator settings and training loop and without a memory limit; one is
// kept per kind of GPU. Not thread-safe.
class KnownReplays {
 public:
  const ReplayResult& replay(const Ledger& ledger, const ReplayOptions& options);

 private:
  using Key = std::tuple<Bytes, Bytes, Bytes>;  // memory of the GPU, forward workspace, backward workspace
  std::vector<std::pair<Key, ReplayResult>> known_;
};

// On CUDA, the reserved memory is the result of an allocator replay. If the GPU has less memory than the
// allocator would reserve, the replay runs again with the GPU's memory: cached blocks are then given back,
// and only if that is not enough does the trainer not fit. `known`: replays of this ledger.
Estimate estimate_of(const Ledger& ledger, const EstimateRequest& request, Bytes dense_parameters,
                     KnownReplays& known);
Estimate estimate_of(const Ledger& ledger, const EstimateRequest& request, Bytes dense_parameters);

// The parts of the live memory at a moment.
Breakdown breakdown_of(const Ledger::Moment& moment);

// The same for parts that are given, not simulated (AMP's formula): without replay and margin.
Estimate estimate_of(const Breakdown& parts, const EstimateRequest& request, const char* phase,
                     Bytes dense_parameters);

// The estimate of a model whose tensors exceed the memory of any machine.
Estimate estimate_beyond_any_machine(const EstimateRequest& request, Bytes dense_parameters);

}  // namespace plimsoll::estimator::estimate
