// What a request must look like before anything is computed from it. Pure; any thread.
#pragma once

#include "base/result.h"
#include "estimator/sharder/sharder.h"

namespace plimsoll::estimator {

inline constexpr std::int64_t kMostTrainers = 65'536;  // a limit of ours: loads are kept for each

// Errors: kInvalid naming the table or the field. Leaves the number of trainers aside.
Result<void> check_tables(const ShardRequest& request);

// Errors: kInvalid when the nodes cannot be alike: above one node, trainers must be a multiple of per_node.
Result<void> check_trainers(const Topology& topology);

// The error that says why, and its figures into `why` where that is wanted.
Error unfittable(const Infeasibility& found, Infeasibility* why);

}  // namespace plimsoll::estimator
