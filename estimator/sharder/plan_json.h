// Plans as JSON, in the format of docs/cli.md and in torchrec's. Pure; any thread.
#pragma once

#include <string>

#include "base/json/edit.h"
#include "base/json/json.h"
#include "estimator/sharder/plan.h"

namespace plimsoll::estimator::inline sharder {

// As docs/cli.md specifies: feasible, perf, memory, plan.
Json to_json(const ShardRequest& request, const Plan& plan);

// Sets perf and memory of docs/cli.md: the plan's times and bytes.
void write_summary(const Plan& plan, const JsonPlace& json);

// torchrec's ShardingPlan, field for field, of the embedding collection at the path `module` on the
// device "cuda" or "cpu"; examples/torchrec_plan.py makes the object from it.
Json to_torchrec_json(const ShardRequest& request, const Plan& plan, const std::string& module,
                      const std::string& device);

}  // namespace plimsoll::estimator::sharder
