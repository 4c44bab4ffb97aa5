// What a request must look like before anything is computed from it. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "estimator/sharder/plan.h"

namespace plimsoll::estimator::inline sharder {

inline constexpr std::int64_t kMaxTrainers = 65'536;  // a limit of ours: loads are kept for each

// Errors: kInvalid naming the table or the field. Leaves the number of trainers aside.
Result<void> check_tables(const ShardRequest& request);

// Errors: kInvalid when budgets or pinned ranks do not suit the number of trainers.
Result<void> check_ranks(const ShardRequest& request);

// A set of ranks, for pinned tables.
class RankSet {
 public:
  RankSet(const std::vector<std::int64_t>& ranks, std::int64_t trainers);

  bool holds(std::int64_t rank) const { return held_[static_cast<std::size_t>(rank)]; }
  bool holds_all(std::int64_t first, std::int64_t count) const;
  std::int64_t count() const { return count_; }

 private:
  std::vector<bool> held_;
  std::int64_t count_ = 0;
};

// By table; null where there is none. Empty when no table has one.
std::vector<const Constraint*> constraints_by_table(const ShardRequest& request);

// Errors: kInvalid when the nodes cannot be alike: above one node, trainers must be a multiple of per_node.
Result<void> check_trainers(const Topology& topology);

// The error that says why, and its figures into `why` where that is wanted.
Error unfittable(const Infeasibility& found, Infeasibility* why);

}  // namespace plimsoll::estimator::sharder
