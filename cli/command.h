// A subcommand of the binary. Each parses its own options and prints its own --help.
#pragma once

#include <boost/program_options/options_description.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace plimsoll::cli {

// Exit codes are a contract (docs/cli.md).
inline constexpr int kExitDone = 0;
inline constexpr int kExitRefused =
    1;  // does not fit, or was refused; the reason is on standard error and in the JSON
inline constexpr int kExitUsage = 2;  // wrong usage, or input that cannot be read

// kExitRefused where the question was understood and has no answer, or none within the budget.
inline int exit_code_of(const Error& error) {
  const bool refused = error.code == ErrorCode::kUnfittable || error.code == ErrorCode::kUnsupported ||
                       error.code == ErrorCode::kTimeout || error.code == ErrorCode::kTooLarge;
  return refused ? kExitRefused : kExitUsage;
}

struct Command {
  const char* name;
  const char* summary;                                    // one line, for `plimsoll --help`
  int (*run)(const std::vector<std::string>& arguments);  // without the program's and the subcommand's name
  // What it accepts, for the completion of shells; null: nothing is completed.
  boost::program_options::options_description (*options)() = nullptr;
};

// The subcommands that work with no cluster or as a client of one.
std::span<const Command> commands();

// Finds argv[1] in `commands` and runs it; --help, --version and mistakes are answered here.
int run_program(int argc, char** argv, const std::vector<Command>& commands);

}  // namespace plimsoll::cli
