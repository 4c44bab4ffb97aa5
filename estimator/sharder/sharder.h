// All headers of the sharder that its callers need. shard.h has an example.
#pragma once

#include "estimator/sharder/fewest_trainers.h"  // IWYU pragma: export
#include "estimator/sharder/plan.h"             // IWYU pragma: export
#include "estimator/sharder/plan_json.h"        // IWYU pragma: export
#include "estimator/sharder/shard.h"            // IWYU pragma: export
#include "estimator/sharder/suggestions.h"      // IWYU pragma: export
#include "estimator/sharder/verify.h"           // IWYU pragma: export
