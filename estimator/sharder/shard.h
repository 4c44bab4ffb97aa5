// shard(): places embedding tables on trainers so that the slowest trainer is as fast, and the fullest as
// empty, as can be, within each trainer's memory; and says how far that is from a proven bound.
//
//   ShardRequest request{.tables = tables, .topology = {.trainers = 64}, .batch_size = 1024,
//                        .budget = 71_GiB};
//   Result<Plan> plan = shard(request);  // kUnfittable: says which constraint failed and by how many bytes
//
// Cost model: torchrec's (docs/sharding.md gives the formulas and their source). Deterministic: equal
// requests give equal plans. Pure; any thread; no allocation outlives the call but the plan.
#pragma once

#include "estimator/sharder/plan.h"

namespace plimsoll::estimator::inline sharder {

// Errors: kInvalid (a table or topology that cannot be), kUnfittable (the message names the constraint, the
// table where it is one, and the bytes that are missing; `why`, if given, gets the same as figures).
Result<Plan> shard(const ShardRequest& request, Infeasibility* why = nullptr);

}  // namespace plimsoll::estimator::sharder
