// shard(): the plan of a request, within a few percent of the proven bound. Pure; any thread.
#pragma once

#include "estimator/sharder/plan.h"

namespace plimsoll::estimator::inline sharder {

// Errors: kInvalid (a table or topology that cannot be), kUnfittable (the message names the constraint, the
// table where it is one, and the bytes that are missing; `why`, if given, gets the same as figures).
Result<Plan> shard(const ShardRequest& request, Infeasibility* why = nullptr);

}  // namespace plimsoll::estimator::inline sharder
