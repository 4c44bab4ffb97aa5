// What to change about a request that cannot be met. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "estimator/sharder/plan.h"

namespace plimsoll::estimator::inline sharder {

// What would make an unfittable request fit; each was searched for, and found.
struct Suggestion {
  std::optional<std::int64_t> trainers;  // the next count that does, with the same budget
  std::optional<Bytes> budget;  // a budget that does, with the same trainers; at most 2% more than needed
};
Suggestion find_suggestion(const ShardRequest& request, std::int64_t most_trainers);
std::string to_string(const Suggestion& suggestion,
                      std::int64_t trainers);  // "72 trainers would do, or 64 with ..."

}  // namespace plimsoll::estimator::sharder
