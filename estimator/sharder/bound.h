// Lower bounds: a time that no plan beats, and numbers of trainers that are refused without a search.
//
// Lagrangian: every plan of `options` whose slowest rank takes P satisfies, for any price of memory
// lambda >= 0, with M the memory of all trainers,
//   W P + lambda M >= sum over tables of min over options (total time + lambda total bytes),
// and uses only options whose single shard takes no longer than P. docs/sharding.md has the proof. Pure
// functions; any thread.
#pragma once

#include "estimator/sharder/options.h"
#include "estimator/sharder/selection.h"

namespace plimsoll::estimator::inline sharder {

struct TimeBound {
  double milliseconds = 0;
  Prices prices;  // at the optimum; 0 unless memory is scarce
};

// Every table must have an option.
TimeBound bound_time(const Options& options, std::int64_t trainers, const MemoryLimits& limits);

// The lower bounds on memory alone: see fewest_trainers.h.
Infeasibility rule_out(const ShardRequest& request, const Options& options);

// Each of so many equal trainers has at least as much GPU memory in any plan, whatever its budget.
double least_budget(const ShardRequest& request, const Options& options);

// Rules out numbers of trainers by the tables' state alone, after one pass over the tables.
class StateBound {
 public:
  explicit StateBound(const ShardRequest& request);  // ignores its budget and number of trainers
  bool rules_out(std::int64_t trainers, Bytes budget) const;

 private:
  bool applies_;        // no host memory is used, and all trainers are equal
  double state_ = 0;    // weights and optimizer state of all tables
  double buffers_ = 0;  // output buffers of all tables, per trainer, with any sharding
};

}  // namespace plimsoll::estimator::sharder
