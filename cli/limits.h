// What one answer of a command may take of its caller's machine: far more than a server's decision, and yet
// an end. For use where an estimate or a decision begins; any thread.
#pragma once

#include <chrono>

#include "base/budget.h"

namespace plimsoll::cli {

inline Budget::Limits limits_of_answer() {
  return {.deadline = std::chrono::steady_clock::now() + std::chrono::minutes(10), .memory = 4_GiB};
}

}  // namespace plimsoll::cli
