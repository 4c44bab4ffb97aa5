// `plimsoll estimate --graph`: the estimate of an exported graph. One thread.
#pragma once

#include "cli/console.h"
#include "cli/options.h"

namespace plimsoll::cli {

// Returns the exit code.
int run_graph_estimate(const po::variables_map& values, OutputFormat format, Console& console);

}  // namespace plimsoll::cli
