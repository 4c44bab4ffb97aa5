// Branch and bound over all plans of a small request (a few tables on a few trainers), where levelling has
// little to move.
//
//   std::optional<ExactPlan> better = search_all(request, options, limits, 0.995 * best_milliseconds);
//
// Deterministic: gives up after a number of steps, not of seconds. Pure; any thread; the plan refers to the
// options, which must outlive it.
#pragma once

#include <optional>
#include <vector>

#include "estimator/sharder/options.h"
#include "estimator/sharder/plan.h"

namespace plimsoll::estimator::inline sharder {

struct ExactPlan {
  std::vector<const Option*> options;  // by table
  std::vector<std::vector<std::int64_t>>
      places;  // by table: ranks of its column blocks, or nodes; 0 for all ranks
};

// Few tables and trainers, no constraints, equal budgets.
bool is_small(const ShardRequest& request);

// The fastest plan within the budgets that takes less than `milliseconds`, if there is one.
std::optional<ExactPlan> search_all(const ShardRequest& request, const Options& options,
                                    const MemoryLimits& limits, double milliseconds);

}  // namespace plimsoll::estimator::sharder
