// `plimsoll ready`: asks server processes whether they are ready. It is what `helm test` runs, since the image has no other
// client. See --help.
#pragma once

#include <boost/program_options.hpp>
#include <string>
#include <vector>

#include "cli/console.h"

namespace plimsoll::process {

// Returns the exit code (cli/command.h).
int run_ready(const std::vector<std::string>& arguments, cli::Console& console);

// The same on the process's own streams.
int run_ready_command(const std::vector<std::string>& arguments);

boost::program_options::options_description ready_options();

}  // namespace plimsoll::process
