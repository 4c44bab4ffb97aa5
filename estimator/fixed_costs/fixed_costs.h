// GPU memory of a trainer besides the tensors of its model: figures of the table (table.h), and overrides
// learned from earlier jobs of the family. Pure; any thread.
#pragma once

#include <string>

#include "base/bytes.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline fixed_costs {

struct FixedCosts {
  // In the framework's allocator, from the first matrix product of forward and of backward on: cuBLAS has a
  // workspace for the handle of each thread.
  Bytes forward_workspace;
  Bytes backward_workspace;
  // Outside the allocator; both upper bounds.
  Bytes communication;  // NCCL's buffers
  Bytes cuda_context;
  // Memory that the allocator can never get: a context of typical size.
  Bytes unavailable;
};
FixedCosts fixed_costs_of(const EstimateRequest& request);

// The rule and the source of a figure, for users.
struct FixedCostOrigin {
  std::string rule;
  std::string source;
};
struct FixedCostOrigins {
  FixedCostOrigin communication;
  FixedCostOrigin cuda_context;
  FixedCostOrigin workspace;  // both workspaces of FixedCosts
};
FixedCostOrigins fixed_cost_origins(const EstimateRequest& request);

// Groups of trainers with a communicator of their own: replicas, tensor, pipeline, context, expert.
std::int64_t communicators(const EstimateRequest& request);

// Communication buffers of a trainer that exchanges embeddings with the others (AMP, Finding 12).
Bytes communication_bytes(std::int64_t trainers);

// Number of batches of a recommendation model whose inputs are on the GPU at once: torchrec's
// TrainPipelineSparseDist copies one, distributes another and trains on a third.
inline constexpr std::int64_t kSparseBatchesInFlight = 3;

}  // namespace plimsoll::estimator::fixed_costs
