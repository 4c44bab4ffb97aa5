// account_of(): from the events of one simulated iteration to the answer: what the tensors take, what the
// framework's allocator reserves for them on this card, and what must be there for the run to be safe. All
// front ends (specs, exported traces) end here. Pure; any thread.
//
//   Estimate estimate = account_of(ledger, request, dense_parameters);
#pragma once

#include "base/bytes.h"
#include "estimator/memory/estimate.h"
#include "estimator/memory/ledger.h"

namespace plimsoll::estimator {

// On CUDA the reserved memory is an allocator replay's. Where the card is too small for all that the
// allocator would like to keep, the replay runs again on what the card has: cached blocks are then given
// back, and only when that is not enough does the trainer not fit.
Estimate account_of(const Ledger& ledger, const EstimateRequest& request, Bytes dense_parameters);

// The same for parts that were told, not simulated (AMP's formula): no replay and no margin.
Estimate account_of(const Breakdown& parts, const EstimateRequest& request, const char* phase,
                    Bytes dense_parameters);

}  // namespace plimsoll::estimator
