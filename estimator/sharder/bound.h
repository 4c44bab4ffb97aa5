// Lower bounds: what no plan can beat, and counts of trainers that need no search to be refused.
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
  Prices prices;  // at the optimum: 0 while memory is not scarce
};

// Every table must have an option.
TimeBound bound_time(const Options& options, std::int64_t trainers, const Room& room);

// What the bounds on memory say: see sharder.h.
Infeasibility rule_out(const ShardRequest& request, const Options& options);

// Trainers below this count are ruled out by the tables' state alone; costs one pass over the tables once.
class StateBound {
 public:
  explicit StateBound(const ShardRequest& request);  // its budget and trainers play no role
  bool rules_out(std::int64_t trainers, Bytes budget) const;

 private:
  bool applies_;        // nothing is kept on hosts, and all trainers are alike
  double state_ = 0;    // weights and optimizer state of all tables
  double buffers_ = 0;  // output buffers of all tables, per trainer and whatever the sharding
};

}  // namespace plimsoll::estimator::sharder
