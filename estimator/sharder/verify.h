// verify(): whether a plan is what its request asks for. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "estimator/sharder/plan.h"

namespace plimsoll::estimator::inline sharder {

// An independent check of a plan against its request, written from the definitions: coverage of each row and
// column exactly once, ranks in range, bytes and times recomputed, budgets kept. Empty: all holds; else what
// is wrong.
std::vector<std::string> verify(const ShardRequest& request, const Plan& plan);

}  // namespace plimsoll::estimator::sharder
