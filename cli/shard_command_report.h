// A sharding plan for people: how near the bound it is, what each rank does and holds, and why. One thread.
#pragma once

#include "cli/console.h"
#include "estimator/sharder/sharder.h"

namespace plimsoll::cli {

void print_shard_report(Console& console, const estimator::ShardRequest& request, const estimator::Plan& plan,
                        double seconds);

}  // namespace plimsoll::cli
