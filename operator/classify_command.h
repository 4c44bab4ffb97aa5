// `plimsoll classify`: prints why an attempt of a job ended, as the controller classifies it. See --help. It
// is not in cli/, which may not include remediation/.
#pragma once

#include <boost/program_options.hpp>
#include <string>
#include <vector>

#include "cli/console.h"

namespace plimsoll::process {

// Returns the exit code (cli/command.h).
int run_classify(const std::vector<std::string>& arguments, cli::Console& console);

// The same on the process's own streams.
int run_classify_command(const std::vector<std::string>& arguments);

boost::program_options::options_description classify_options();

}  // namespace plimsoll::process
