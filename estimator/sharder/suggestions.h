// What to change in a request that cannot be met. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "estimator/sharder/plan.h"

namespace plimsoll::estimator::inline sharder {

// Changes with which an unfittable request fits; for each a plan was found.
struct Suggestion {
  std::optional<std::int64_t> trainers;  // the next number that fits, with the same budget
  std::optional<Bytes> budget;  // a budget that fits, with the same trainers; at most 2% more than needed
};
Suggestion find_suggestion(const ShardRequest& request, std::int64_t most_trainers);
// "72 trainers fit, or 64 with ..."; `trainers` is the request's number.
std::string to_string(const Suggestion& suggestion, std::int64_t trainers);

}  // namespace plimsoll::estimator::sharder
