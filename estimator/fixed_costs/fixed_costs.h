// What a trainer's card holds besides tensors of the model: figures of the one table (table.h),
// and the overrides learned from earlier jobs of the family. Pure; any thread.
#pragma once

#include "base/bytes.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline fixed_costs {

struct FixedCosts {
  // Inside the framework's allocator, from the first matrix product of forward and of backward on: cuBLAS
  // keeps a workspace for each thread's handle.
  Bytes forward_workspace;
  Bytes backward_workspace;
  // Outside it; both upper bounds.
  Bytes communication;  // NCCL and what the trainers tell each other
  Bytes cuda_context;
  // What is never there for the allocator: the driver's own share of the card and a context of usual size.
  Bytes out_of_reach;
};
FixedCosts fixed_costs_of(const EstimateRequest& request);

// Communication buffers of one trainer that exchanges embeddings with the others (AMP, Finding 12).
Bytes communication_bytes(std::int64_t trainers);

// What the upper bound adds for what the simulation cannot know, `transient` of the trainer's memory coming
// and going within an iteration.
Bytes safety_margin(Bytes transient);

// Batches of a recommendation model whose inputs are on the device at once: torchrec's
// TrainPipelineSparseDist copies one, distributes another and trains on a third.
inline constexpr std::int64_t kSparseBatchesInFlight = 3;

}  // namespace plimsoll::estimator::fixed_costs
