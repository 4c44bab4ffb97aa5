// verify(): checks a plan against its request. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "estimator/sharder/plan.h"

namespace plimsoll::estimator::inline sharder {

// An independent check, written from the definitions: each row and column is covered exactly once, ranks are in
// range, recomputed bytes and times are equal, and budgets are kept. Returns what is wrong; empty: nothing.
std::vector<std::string> verify(const ShardRequest& request, const Plan& plan);

}  // namespace plimsoll::estimator::sharder
