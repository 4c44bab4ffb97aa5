#include <algorithm>
#include <array>
#include <new>
#include <string_view>

#include "base/words.h"
#include "cli/classify_command.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/subcommands.h"

namespace plimsoll::cli {
namespace {

// Runs a subcommand on the process's own streams. Output that could not be written is an error.
template <int (*kRun)(const std::vector<std::string>&, Console&)>
int on_process(const std::vector<std::string>& arguments) {
  Console console = process_console();
  const int code = kRun(arguments, console);
  if (!console.out.flush()) {
    return complain(console, kExitUsage, "standard output could not be written");
  }
  return code;
}

int complete_built_in(const std::vector<std::string>& arguments, Console& console) {
  return run_completion(arguments, commands(), console);
}

constexpr std::array<Command, 7> kCommands = {{
    {"estimate", "Tell the peak GPU memory of a training job, and what it consists of",
     on_process<run_estimate>, estimate_options},
    {"provision", "Tell the GPU model and the number of trainers that a job would be given",
     on_process<run_provision>, provision_options},
    {"shard", "Place embedding tables on trainers, within their memory", on_process<run_shard>,
     shard_options},
    {"swap", "Tell what training through host memory moves", on_process<run_swap>, swap_options},
    {"classify", "Tell why an attempt of a job ended, from its pods", on_process<run_classify>,
     classify_options},
    {"completion", "Print the completion script of a shell", on_process<complete_built_in>,
     completion_options},
    {"version", "Print the version", on_process<run_version>, version_options},
}};

void print_help(std::ostream& out, std::span<const Command> commands) {
  out << "Plimsoll knows how much GPU memory a training job needs, and loads it onto just enough GPUs.\n\n"
         "Usage: plimsoll COMMAND [options]     (also: kubectl plimsoll COMMAND [options])\n\nCommands:\n";
  std::size_t width = 0;
  for (const Command& command : commands) {
    width = std::max(width, std::string_view(command.name).size());
  }
  for (const Command& command : commands) {
    out << "  " << command.name << std::string(width + 2 - std::string_view(command.name).size(), ' ')
        << command.summary << '\n';
  }
  out << "\nEach has its own --help, with examples. Exit codes: 0 done, 1 does not fit or refused, 2 wrong "
         "usage "
         "or\nunreadable input.\n";
}

}  // namespace

std::span<const Command> commands() {
  return kCommands;
}

int run_program(const std::vector<std::string>& arguments, std::span<const Command> commands,
                Console& console) {
  if (arguments.empty()) {
    print_help(console.err, commands);
    return kExitUsage;
  }
  std::string name = arguments.front();
  std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (name == "help" && !rest.empty()) {
    name = rest.front();
    rest = {"--help"};
  }
  if (name == "--help" || name == "-h" || name == "help") {
    print_help(console.out, commands);
    return kExitDone;
  }
  if (name == "--version") {
    return run_version({}, console);
  }
  if (name == "completion") {
    return run_completion(rest, commands, console);
  }
  const auto found = std::find_if(commands.begin(), commands.end(),
                                  [&](const Command& command) { return name == command.name; });
  if (found == commands.end()) {
    std::vector<std::string> known;
    for (const Command& command : commands) {
      known.emplace_back(command.name);
    }
    const std::string hint = did_you_mean(name, known);
    const bool option = name.starts_with('-');
    return complain(console, kExitUsage,
                    (option ? "unknown option " : "unknown command ") + name.substr(0, 64) +
                        (hint.empty() ? "; see plimsoll --help" : hint));
  }
  try {
    return found->run(rest);
  } catch (const std::bad_alloc&) {
    return complain(console, kExitUsage, "out of memory: the input is too large for this machine");
  }
}

int run_program(int argc, char** argv, const std::vector<Command>& commands) {
  Console console = process_console();
  return run_program(std::vector<std::string>(argv + std::min(argc, 1), argv + argc), commands, console);
}

}  // namespace plimsoll::cli
