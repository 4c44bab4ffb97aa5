// `plimsoll classify`: prints why an attempt of a job ended, as the controller classifies it. See --help.
#pragma once

#include <boost/program_options.hpp>
#include <string>
#include <vector>

#include "cli/console.h"

namespace plimsoll::cli {

// Returns the exit code (cli/command.h).
int run_classify(const std::vector<std::string>& arguments, Console& console);

boost::program_options::options_description classify_options();

}  // namespace plimsoll::cli
