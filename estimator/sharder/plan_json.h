// Plans as JSON: of docs/cli.md, and of torchrec. Pure; any thread.
#pragma once

#include <string>

#include "base/json/json.h"
#include "estimator/sharder/plan.h"

namespace plimsoll::estimator::inline sharder {

// The contract of docs/cli.md: feasible, perf, memory, plan.
Json to_json(const ShardRequest& request, const Plan& plan);

// torchrec's ShardingPlan, field for field, of the embedding collection at the path `module` ("cuda" or "cpu"
// being the device): examples/torchrec_plan.py makes the object of it.
Json to_torchrec_json(const ShardRequest& request, const Plan& plan, const std::string& module,
                      const std::string& device);

}  // namespace plimsoll::estimator::sharder
