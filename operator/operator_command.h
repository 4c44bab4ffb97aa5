// `plimsoll operator`: runs the controllers until SIGTERM. See --help for the options.
#pragma once

#include <string>
#include <vector>

namespace plimsoll::process {

// Returns the process's exit code.
int run_operator_command(const std::vector<std::string>& arguments);

}  // namespace plimsoll::process
