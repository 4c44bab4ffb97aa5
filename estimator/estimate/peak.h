// estimate_of(): from the events of one simulated iteration to the answer: what the tensors take, what the
// framework's allocator reserves for them on this card, and what must be there for the run to be safe. All
// front ends (specs, exported traces) end here. Pure; any thread.
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

// Replays of one ledger under the same allocator settings and of the same loop, for cards whose room plays no
// role: each kind of card is asked about once. Not thread-safe.
class KnownReplays {
 public:
  const ReplayResult& replay(const Ledger& ledger, const ReplayOptions& options);

 private:
  using Key = std::tuple<Bytes, Bytes, Bytes>;  // the card, and the workspaces on it
  std::vector<std::pair<Key, ReplayResult>> known_;
};

// On CUDA the reserved memory is an allocator replay's. Where the card is too small for all that the
// allocator would like to keep, the replay runs again on what the card has: cached blocks are then given
// back, and only when that is not enough does the trainer not fit. `known`: of this ledger.
Estimate estimate_of(const Ledger& ledger, const EstimateRequest& request, Bytes dense_parameters,
                     KnownReplays& known);
Estimate estimate_of(const Ledger& ledger, const EstimateRequest& request, Bytes dense_parameters);

// What the tensors of a moment are.
Breakdown breakdown_of(const Ledger::Moment& moment);

// The same for parts that were told, not simulated (AMP's formula): no replay and no margin.
Estimate estimate_of(const Breakdown& parts, const EstimateRequest& request, const char* phase,
                     Bytes dense_parameters);

}  // namespace plimsoll::estimator::estimate
