// The fewest trainers that hold the tables: by lower bounds alone, and with a plan. Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>

#include "estimator/sharder/plan.h"

namespace plimsoll::estimator::inline sharder {

// Checks the lower bounds on memory, without a search: never refuses a request that has a plan. The request
// must be valid for `shard`.
Infeasibility rule_out(const ShardRequest& request);

// The smallest world size that `rule_out` cannot exclude, for `request` with any number of trainers up to
// `most`: multiples of per_node above one node, any count below. Errors: kUnfittable when `most` trainers are
// ruled out too.
Result<std::int64_t> fewest_trainers_bound(const ShardRequest& request, std::int64_t most);

struct FewestTrainersPlan {
  std::int64_t trainers = 0;
  Plan plan;
  std::int64_t searched = 0;  // numbers of trainers that took a search; bounds ruled out the others
};

// The fewest trainers from `least` to `most` for which a plan is found: multiples of per_node above one node,
// any number below. Tries every number, because tables that fit on n trainers may not fit on more (buffers grow
// with the number of trainers). `budget_of` is called once for each number it tries, in ascending order; its error
// ends the search. Without it the request's own budget holds for all. Errors: also those of `shard`, for the
// largest number.
Result<FewestTrainersPlan> shard_on_fewest_trainers(
    const ShardRequest& request, std::int64_t least, std::int64_t most,
    const std::function<Result<Bytes>(std::int64_t)>& budget_of = {}, Infeasibility* why = nullptr);

}  // namespace plimsoll::estimator::sharder
