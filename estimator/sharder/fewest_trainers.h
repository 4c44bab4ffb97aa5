// The fewest trainers that hold the tables: by bounds alone, and with a plan. Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>

#include "estimator/sharder/plan.h"

namespace plimsoll::estimator::inline sharder {

// What the lower bounds on memory say, without searching: never refuses what could be met. The request must
// be one that `shard` does not call invalid.
Infeasibility rule_out(const ShardRequest& request);

// The smallest world size that `rule_out` cannot exclude, for `request` with any number of trainers up to
// `most`: multiples of per_node above one node, any count below. Errors: kUnfittable when `most` trainers are
// ruled out too.
Result<std::int64_t> fewest_trainers_bound(const ShardRequest& request, std::int64_t most);

struct FewestTrainersPlan {
  std::int64_t trainers = 0;
  Plan plan;
  std::int64_t searched = 0;  // counts that took a search; the bounds ruled the others out
};

// The fewest trainers from `least` to `most` for which a plan is found: multiples of per_node above one node,
// any count below. Every count is looked at, since what fits on n trainers need not fit on more (buffers
// grow with the batch of all). `budget_of` is asked once for each count on the way, in ascending order, and
// may be empty, when the request's own budget holds for all; its error ends the search. Errors: also those
// of `shard`, for the largest count.
Result<FewestTrainersPlan> shard_on_fewest_trainers(
    const ShardRequest& request, std::int64_t least, std::int64_t most,
    const std::function<Result<Bytes>(std::int64_t)>& budget_of = {}, Infeasibility* why = nullptr);

}  // namespace plimsoll::estimator::sharder
