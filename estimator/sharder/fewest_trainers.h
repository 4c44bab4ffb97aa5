// The fewest trainers that hold the tables: by lower bounds alone, and with a plan. Pure; any thread.
#pragma once

#include <cstddef>
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
  std::size_t variant = 0;
  Plan plan;
  std::int64_t searched = 0;  // numbers of trainers that took a search; bounds ruled out the others
};

// Sets what depends on at.topology.trainers: the budget, the batch size. It is called with variant 0, 1, ... of a
// number of trainers until one has a plan, or it returns false; numbers ascend. Its error ends the search.
using Variants = std::function<Result<bool>(ShardRequest& at, std::size_t variant)>;

// The fewest trainers from `least` to `most` for which a plan is found: multiples of per_node above one node,
// any number below. Tries every number, because tables that fit on n trainers may not fit on more (buffers grow
// with the number of trainers). Without `variants` the request is the same for all numbers. Errors: also those of
// `shard`, for the largest number that has a variant.
Result<FewestTrainersPlan> shard_on_fewest_trainers(const ShardRequest& request, std::int64_t least,
                                                    std::int64_t most, const Variants& variants = {},
                                                    Infeasibility* why = nullptr);

}  // namespace plimsoll::estimator::sharder
