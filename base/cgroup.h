// What a process may use of the machine: processors and memory, as its control groups say (v1, v2 or both),
// else as the machine has them.
//
//   const ProcessLimits limits = process_limits();
//   start_workers(limits.whole_cpus());
//
// The lowest limit of all groups counts, from the process's own up to the root of the mounted
// hierarchy. Files that are missing or malformed set no limit: it never fails.
#pragma once

#include <string>

#include "base/bytes.h"

namespace plimsoll {

struct ProcessLimits {
  double cpus = 1;  // the quota divided by its period; at most those the process may run on
  Bytes memory;

  // How many threads can compute at once: `cpus` rounded up.
  int whole_cpus() const;
};

// What the machine has.
struct Machine {
  int cpus = 1;
  Bytes memory;
};
Machine this_machine();

// `root` is put before all paths: "" but in tests.
ProcessLimits process_limits(const std::string& root = "", const Machine& machine = this_machine());

}  // namespace plimsoll
