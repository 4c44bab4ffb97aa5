// What each trainer of a sharded job takes. The dense part is alike on all of them (but for ZeRO-1's owners);
// what differs is the tables that a trainer holds and what it looks up in them for everybody: indices
// received, pooled rows sent (AMP, SoCC'23, Findings 10 and 11). The fullest decides what a job is given;
// this says how far the others are from it.
//
//   for (const TrainerLoad& load : trainer_loads(decision.estimate, decision.plan)) load.lookups;
//
// Pure; any thread.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "base/json/json.h"
#include "estimator/estimate/estimate.h"
#include "estimator/sharder/sharder.h"

namespace plimsoll::estimator::inline provisioner {

struct TrainerLoad {
  Bytes allocated;   // at its peak, as Peak::allocated
  Bytes embeddings;  // of that: its shards, and their optimizer state
  Bytes lookups;     // of that: indices of all trainers for its shards, and the pooled rows it sends them
};

// By rank. `fullest`: the estimate made with plan.max_memory. Empty when there is no plan.
std::vector<TrainerLoad> trainer_loads(const Estimate& fullest, const Plan& plan);

// [{"allocatedBytes", "embeddingBytes", "lookupBytes"}]
Json to_json(const std::vector<TrainerLoad>& loads);

}  // namespace plimsoll::estimator::provisioner
