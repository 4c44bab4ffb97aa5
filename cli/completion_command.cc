// `plimsoll completion SHELL`: the commands and options as a script for each of three shells.
#include <array>
#include <map>

#include "cli/options.h"
#include "cli/subcommands.h"

namespace plimsoll::cli {
namespace {

constexpr Help kHelp = {
    "plimsoll completion bash|zsh|fish",
    "Prints a script that completes the commands and options of plimsoll in that shell.",
    "  source <(plimsoll completion bash)\n"
    "  plimsoll completion zsh > \"${fpath[1]}/_plimsoll\"\n"
    "  plimsoll completion fish > ~/.config/fish/completions/plimsoll.fish",
};

struct Values {
  const char* option;
  const char* words;
};

// Options with a few possible values. Options of file names complete as files.
constexpr std::array<Values, 5> kValues = {{
    {"output", "table json yaml"},
    {"method", "plimsoll amp"},
    {"device", "cuda cpu"},
    {"optimizer",
     "SGD Momentum Adam AdamW Adagrad RowWiseAdagrad RMSprop LAMB Adafactor Adam8bit AdamW8bit PagedAdamW "
     "PagedAdamW8bit Lion Lion8bit PagedLion8bit Muon NAdam RAdam Adadelta Adamax"},
    {"precision", "FP32 TF32 BF16Mixed FP16Mixed BF16"},
}};

using Commands = std::span<const Command>;

std::string command_names(Commands commands) {
  std::string names;
  for (const Command& command : commands) {
    names += std::string(command.name) + " ";
  }
  return names + "help";
}

po::options_description options_of(const Command& command) {
  return command.options == nullptr ? po::options_description() : command.options();
}

std::string option_names(const Command& command) {
  std::string names;
  const po::options_description description = options_of(command);
  for (const auto& option : description.options()) {
    if (!option->long_name().empty()) {
      names += (names.empty() ? "--" : " --") + option->long_name();
    }
  }
  return names;
}

// bash's script serves zsh too, through its bashcompinit.
std::string bash_script(Commands commands) {
  std::string script =
      "# bash completion for plimsoll\n"
      "_plimsoll() {\n"
      "  local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
      "  case \"$before\" in\n";
  for (const Values& values : kValues) {
    script += std::string("    --") + values.option + ")\n      COMPREPLY=($(compgen -W \"" + values.words +
              "\" -- \"$word\")); return ;;\n";
  }
  script +=
      "    -o)\n      COMPREPLY=($(compgen -W \"table json yaml\" -- \"$word\")); return ;;\n"
      "    -f|--filename|--cluster|--tables|--graph|--kubeconfig|--log)\n"
      "      COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n"
      "  esac\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"" +
      command_names(commands) +
      "\" -- \"$word\")); return\n"
      "  fi\n"
      "  case \"${COMP_WORDS[1]}\" in\n";
  for (const Command& command : commands) {
    const std::string extra = std::string(command.name) == "completion" ? "bash zsh fish " : "";
    script += std::string("    ") + command.name + ") COMPREPLY=($(compgen -W \"" + extra +
              option_names(command) + "\" -- \"$word\")) ;;\n";
  }
  return script + "  esac\n}\ncomplete -F _plimsoll plimsoll\n";
}

std::string zsh_script(Commands commands) {
  return "#compdef plimsoll\nautoload -Uz bashcompinit && bashcompinit\n" + bash_script(commands);
}

std::string fish_script(Commands commands) {
  std::string script =
      "# fish completion for plimsoll\ncomplete -c plimsoll -n __fish_use_subcommand -f -a \"" +
      command_names(commands) + "\"\n";
  for (const Command& command : commands) {
    const std::string when =
        std::string("complete -c plimsoll -n \"__fish_seen_subcommand_from ") + command.name + "\"";
    if (std::string(command.name) == "completion") {
      script += when + " -f -a \"bash zsh fish\"\n";
    }
    const po::options_description description = options_of(command);
    for (const auto& option : description.options()) {
      std::string line = when + " -l " + option->long_name();
      for (const Values& values : kValues) {
        if (option->long_name() == values.option) {
          line += std::string(" -x -a \"") + values.words + "\"";
        }
      }
      script += line + "\n";
    }
  }
  return script;
}

}  // namespace

po::options_description completion_options() {
  po::options_description options;
  options.add_options()("help,h", "print this help");
  return options;
}

int run_completion(const std::vector<std::string>& arguments, std::span<const Command> commands,
                   Console& console) {
  const std::map<std::string, std::string (*)(Commands)> scripts = {
      {"bash", bash_script}, {"zsh", zsh_script}, {"fish", fish_script}};
  if (arguments.size() == 1) {
    if (const auto script = scripts.find(arguments.front()); script != scripts.end()) {
      console.out << script->second(commands);
      return kExitDone;
    }
    po::variables_map values;
    if (const std::optional<int> code =
            arguments.front().starts_with('-')
                ? read_options(arguments, completion_options(), kHelp, console, values)
                : std::nullopt) {
      return *code;
    }
  }
  return complain(console, kExitUsage, "name one shell: plimsoll completion bash|zsh|fish");
}

}  // namespace plimsoll::cli
