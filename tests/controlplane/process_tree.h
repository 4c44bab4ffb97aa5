// What /proc says of processes; for tests that nothing is left running.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace plimsoll::testing {

// Gone or a zombie that its new parent has yet to collect.
bool process_ended(pid_t pid);
// Waits for that; false when it still runs after `limit`.
bool wait_until_ended(pid_t pid, std::chrono::milliseconds limit);
std::vector<pid_t> children_of(pid_t pid);

}  // namespace plimsoll::testing
