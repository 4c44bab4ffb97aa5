// What a trainer's card holds besides tensors of the model: one table, its sources beside the figures in
// fixed_costs.cc, and the overrides learned from earlier jobs of the family. Pure; any thread.
#pragma once

#include "base/bytes.h"
#include "estimator/memory/estimate.h"

namespace plimsoll::estimator {

struct FixedCosts {
  Bytes workspace;      // cuBLAS and cuBLASLt, inside the framework's allocator
  Bytes communication;  // NCCL and what the trainers tell each other, outside it
  Bytes cuda_context;   // outside it
};
FixedCosts fixed_costs(const EstimateRequest& request);

// Communication buffers of one trainer of `trainers`.
Bytes communication_bytes(std::int64_t trainers);

// An upper bound on what the caching allocator holds beyond the live blocks, `transient` of which come and go
// within an iteration.
Bytes allocator_slack(Bytes transient);

// Blocks of the CUDA caching allocator are multiples of so many bytes.
inline constexpr std::int64_t kCudaGranule = 512;

// Batches of a recommendation model whose inputs are on the device at once: torchrec's
// TrainPipelineSparseDist copies one, distributes another and trains on a third.
inline constexpr std::int64_t kSparseBatchesInFlight = 3;

}  // namespace plimsoll::estimator
