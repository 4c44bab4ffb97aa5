// shard(): places embedding tables on trainers within each trainer's memory. Minimizes the time of the slowest
// trainer, then the memory of the fullest; the plan also has a proven lower bound of its time.
//
//   ShardRequest request{.tables = tables, .topology = {.trainers = 64}, .batch_size = 1024,
//                        .budget = 71_GiB};
//   Result<Plan> plan = shard(request);  // kUnfittable: says which constraint failed and by how many bytes
//
// Cost model: torchrec's (docs/sharding.md gives the formulas and their source). Deterministic: equal
// requests give equal plans. Pure; any thread.
#pragma once

#include "estimator/sharder/plan.h"

namespace plimsoll::estimator::inline sharder {

// Errors: kInvalid (an impossible table or topology), kUnfittable (the message names the constraint, the bytes
// that are missing, and the table if one is the cause; `why`, if given, gets the same as figures).
Result<Plan> shard(const ShardRequest& request, Infeasibility* why = nullptr);

// The lower_bound_milliseconds of that plan, without a search, which takes most of the time. Errors: those of shard(), except
// that a request that no lower bound excludes may still have no plan.
Result<double> least_milliseconds(const ShardRequest& request);

}  // namespace plimsoll::estimator::sharder
