// `plimsoll webhook`: serves the mutating and validating webhooks until SIGTERM. See --help for the options.
#pragma once

#include <string>
#include <vector>

namespace plimsoll::process {

// Returns the process's exit code.
int run_webhook_command(const std::vector<std::string>& arguments);

}  // namespace plimsoll::process
