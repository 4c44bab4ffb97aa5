// Checks of a request, which come before any computation. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "estimator/sharder/plan.h"

namespace plimsoll::estimator::inline sharder {

inline constexpr std::int64_t kMaxTrainers = 65'536;  // a limit of ours: loads are kept for each

// Errors: kInvalid naming the table or the field. Does not check the number of trainers.
Result<void> check_tables(const ShardRequest& request);

// Errors: kInvalid when budgets or pinned ranks do not match the number of trainers.
Result<void> check_ranks(const ShardRequest& request);

// The ranks on which a pinned table may be; all of them when it is pinned to none.
class RankSet {
 public:
  RankSet(const std::vector<std::int64_t>& ranks, std::int64_t trainers);

  // Those of `count` ranks from `first` on.
  std::vector<std::int64_t> in(std::int64_t first, std::int64_t count) const;
  // The nodes of `per_node` ranks of which all are in the set.
  std::vector<std::int64_t> whole_nodes(std::int64_t per_node) const;

 private:
  std::vector<bool> held_;
};

// By table; null for a table without one. Empty when no table has one.
std::vector<const Constraint*> constraints_by_table(const ShardRequest& request);

// Errors: kInvalid when nodes would differ: above one node, trainers must be a multiple of per_node.
Result<void> check_trainers(const Topology& topology);

// The error for `found`, which is also copied to `why` unless that is null.
Error unfittable(const Infeasibility& found, Infeasibility* why);

}  // namespace plimsoll::estimator::sharder
