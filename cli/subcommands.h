// The subcommands as functions of their arguments and a console, so that tests can call them. Each returns
// its exit code (cli/command.h). One thread.
#pragma once

#include <boost/program_options.hpp>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/console.h"

namespace plimsoll::cli {

int run_estimate(const std::vector<std::string>& arguments, Console& console);
int run_provision(const std::vector<std::string>& arguments, Console& console);
int run_swap(const std::vector<std::string>& arguments, Console& console);
int run_shard(const std::vector<std::string>& arguments, Console& console);
// `commands`: all that the program has, which may be more than this library's.
int run_completion(const std::vector<std::string>& arguments, std::span<const Command> commands,
                   Console& console);
int run_version(const std::vector<std::string>& arguments, Console& console);

// What each accepts, for its --help and for shell completion.
boost::program_options::options_description estimate_options();
boost::program_options::options_description provision_options();
boost::program_options::options_description shard_options();
boost::program_options::options_description swap_options();
boost::program_options::options_description completion_options();
boost::program_options::options_description version_options();

// `plimsoll` without its first word: finds the subcommand and runs it.
int run_program(const std::vector<std::string>& arguments, std::span<const Command> commands,
                Console& console);

}  // namespace plimsoll::cli
