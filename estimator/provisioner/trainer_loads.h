// The memory of each trainer of a sharded job. The dense part is equal on all of them (except ZeRO-1's owners).
// What differs is the tables that a trainer holds and the buffers of its lookups for all trainers: indices
// received and pooled rows sent (AMP, SoCC'23, Findings 10 and 11). The fullest trainer decides the size of a
// job; this tells how much less the others take.
//
//   for (const TrainerLoad& load : trainer_loads(decision.estimate, decision.plan)) load.lookups;
//
// Pure; any thread.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "base/json/json.h"
#include "estimator/estimate/estimate.h"
#include "estimator/provisioner/exchange.h"
#include "estimator/sharder/sharder.h"

namespace plimsoll::estimator::inline provisioner {

struct TrainerLoad {
  Bytes allocated;   // at its peak, as Peak::allocated
  Bytes embeddings;  // part of it: its shards with their optimizer state
  Bytes lookups;     // part of it: all trainers' indices into its shards, and the pooled rows sent back
};

// By rank. `fullest`: the estimate made with plan.max_memory. Empty when there is no plan.
std::vector<TrainerLoad> trainer_loads(const Estimate& fullest, const Plan& plan);

// The same of a graph, whose lookups are operators (fullest.lookups): buffers of lookups and exchanges count when
// they exist, and not during the whole iteration. `exchanges`: of the plan.
std::vector<TrainerLoad> trainer_loads(const Estimate& fullest, const Plan& plan,
                                       const std::vector<RankExchange>& exchanges);

// [{"allocatedBytes", "embeddingBytes", "lookupBytes"}]
Json to_json(const std::vector<TrainerLoad>& loads);

}  // namespace plimsoll::estimator::provisioner
