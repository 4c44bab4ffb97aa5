#include "workloads/arguments.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "base/number.h"

namespace plimsoll::workloads {
namespace {

using enum SizeQuantity;

struct Name {
  std::string_view name;
  SizeQuantity quantity;
};

// Of flags, `-` and `_` are the same.
constexpr Name kFlags[] = {
    {"--nproc-per-node", kGpusPerPod},         // torchrun: torch/distributed/run.py
    {"--nnodes", kPods},                       // torchrun
    {"--num-processes", kGpus},                // accelerate: commands/launch.py
    {"--num-machines", kPods},                 // accelerate
    {"--num-gpus", kGpusPerPod},               // deepspeed: launcher/runner.py
    {"--num-nodes", kPods},                    // deepspeed; Lightning's Trainer
    {"--trainer.devices", kGpusPerPod},        // LightningCLI
    {"--trainer.num-nodes", kPods},            // LightningCLI
    {"trainer.devices", kGpusPerPod},          // Hydra overrides, as NeMo's
    {"trainer.num-nodes", kPods},              // the same
    {"trainer.n-gpus-per-node", kGpusPerPod},  // verl
    {"trainer.nnodes", kPods},                 // verl
};
// Of programs that start processes by MPI.
constexpr Name kMpiFlags[] = {{"-np", kGpus}, {"-n", kGpus}, {"--n", kGpus}, {"--np", kGpus}};
constexpr std::string_view kMpiPrograms[] = {"mpirun", "mpiexec", "horovodrun"};

constexpr Name kVariables[] = {
    {"WORLD_SIZE", kGpus},
    {"NNODES", kPods},
    {"NUM_NODES", kPods},
    {"PET_NNODES", kPods},  // torchrun reads PET_ and the name of a flag: torch/distributed/argparse_util.py
    {"NPROC_PER_NODE", kGpusPerPod},
    {"GPUS_PER_NODE", kGpusPerPod},
    {"PET_NPROC_PER_NODE", kGpusPerPod},
    {"LOCAL_WORLD_SIZE", kGpusPerPod},
};

std::int64_t value_of(const JobSize& size, SizeQuantity quantity) {
  return quantity == kPods ? size.pods : quantity == kGpus ? size.gpus() : size.gpus_per_pod;
}

const char* described(SizeQuantity quantity) {
  return quantity == kPods ? "pods that request GPUs" : quantity == kGpus ? "GPUs" : "GPUs a pod";
}

template <std::size_t count>
std::optional<SizeQuantity> find(const Name (&names)[count], std::string_view name) {
  const auto* found =
      std::find_if(std::begin(names), std::end(names), [&](const Name& each) { return each.name == name; });
  return found == std::end(names) ? std::nullopt : std::optional(found->quantity);
}

// A part of a text without blanks, quotes and operators of a shell.
struct Token {
  std::string pointer;
  std::size_t begin = 0;
  std::string_view text;
};

bool separates(char each) {
  return std::string_view(" \t\r\n'\";&|()`\\").find(each) != std::string_view::npos;
}

void split(std::string_view text, const std::string& pointer, std::vector<Token>& tokens) {
  for (std::size_t at = 0; at < text.size();) {
    if (separates(text[at])) {
      ++at;
      continue;
    }
    const std::size_t begin = at;
    // "$(NAME)" is one token, for Kubernetes puts a variable's value there.
    for (bool in_reference = false;
         at < text.size() &&
         (in_reference || !separates(text[at]) || (text[at] == '(' && text[at - 1] == '$' && at > begin));
         ++at) {
      in_reference = text[at] != ')' && (in_reference || text[at] == '(');
    }
    tokens.push_back({pointer, begin, text.substr(begin, at - begin)});
  }
}

std::string with_dashes(std::string_view flag) {
  std::string name(flag);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

class Finder {
 public:
  Finder(const JsonView& container, const JobSize& now) : now_(now) {
    for (const JsonView& variable : member(container, {"env"}).elements()) {
      if (member(variable, {"value"}).text()) {
        variables_.insert(text_member(variable, {"name"}));
      }
    }
  }

  void read_command_line(const JsonView& container) {
    std::vector<Token> tokens;
    for (const char* part : {"command", "args"}) {
      std::size_t index = 0;
      for (const JsonView& text : member(container, {part}).elements()) {
        split(text.text().value_or(""), '/' + std::string(part) + '/' + std::to_string(index++), tokens);
      }
    }
    bool by_mpi = false;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const Token& token = tokens[i];
      const std::string_view program = token.text.substr(token.text.rfind('/') + 1);
      by_mpi = by_mpi ||
               std::find(std::begin(kMpiPrograms), std::end(kMpiPrograms), program) != std::end(kMpiPrograms);
      const std::size_t equals = token.text.find('=');
      const std::string_view name = token.text.substr(0, equals);
      if (const std::optional<SizeQuantity> variable = find(kVariables, name);
          variable && equals != std::string_view::npos) {
        read_value(name, token, equals + 1, *variable);
        continue;
      }
      std::optional<SizeQuantity> quantity = find(kFlags, with_dashes(name));
      quantity = quantity || !by_mpi ? quantity : find(kMpiFlags, name);
      if (!quantity) {
        continue;
      }
      if (equals != std::string_view::npos) {
        read_value(name, token, equals + 1, *quantity);
      } else if (name.front() == '-' && i + 1 < tokens.size()) {
        read_value(name, tokens[++i], 0, *quantity);
      }
    }
  }

  void read_environment(const JsonView& container) {
    std::size_t index = 0;
    for (const JsonView& variable : member(container, {"env"}).elements()) {
      const std::string name = text_member(variable, {"name"});
      const std::optional<std::string_view> value = member(variable, {"value"}).text();
      const std::optional<SizeQuantity> quantity = find(kVariables, name);
      if (value && quantity) {
        read_value(name, {"/env/" + std::to_string(index) + "/value", 0, *value}, 0, *quantity);
      }
      ++index;
    }
  }

  SizeMentions take() && { return std::move(found_); }

 private:
  // The value is the token's text from `from` on.
  void read_value(std::string_view name, const Token& token, std::size_t from, SizeQuantity quantity) {
    const std::string_view value = token.text.substr(from);
    const std::int64_t expected = value_of(now_, quantity);
    if (parse_number<std::int64_t>(value) == expected) {
      found_.list.push_back({token.pointer, token.begin + from, value.size(), quantity});
    } else if (!is_found_at_start(value) && found_.uncertain.empty()) {
      found_.uncertain = std::string(name) + " is " + std::string(value.substr(0, 64)) +
                         ", where the job has " + std::to_string(expected) + " " + described(quantity);
    }
  }

  // Whether the launcher or the operator of the kind finds the value when the pod starts.
  bool is_found_at_start(std::string_view value) const {
    if (value == "auto" || value == "gpu" || value == "cpu") {
      return true;
    }
    if (value.empty() || value.front() != '$') {
      return false;
    }
    value.remove_prefix(1);
    while (!value.empty() && std::string_view("{(").find(value.front()) != std::string_view::npos) {
      value.remove_prefix(1);
    }
    const std::string name(value.substr(0, value.find_first_of("}):-")));
    // One that the template sets to a text is no finding, unless it is changed with the size.
    return !variables_.contains(name) || find(kVariables, name);
  }

  JobSize now_;
  std::set<std::string> variables_;  // that the container sets to a text
  SizeMentions found_;
};

// The text at "/args/2" or "/env/0/value" of a container.
std::string_view text_at(const JsonView& container, std::string_view pointer) {
  const std::size_t slash = pointer.find('/', 1);
  const std::string_view part = pointer.substr(1, slash - 1);
  const std::size_t end = std::min(pointer.find('/', slash + 1), pointer.size());
  const auto index = parse_number<std::size_t>(pointer.substr(slash + 1, end - slash - 1)).value_or(0);
  std::size_t at = 0;
  for (const JsonView& each : member(container, {part}).elements()) {
    if (at++ == index) {
      return (end < pointer.size() ? member(each, {"value"}) : each).text().value_or("");
    }
  }
  return {};
}

}  // namespace

SizeMentions find_mentions(const JsonView& container, const JobSize& now) {
  Finder finder(container, now);
  finder.read_command_line(container);
  finder.read_environment(container);
  return std::move(finder).take();
}

std::vector<std::pair<std::string, std::string>> rewritten(const JsonView& container,
                                                           const SizeMentions& mentions,
                                                           const JobSize& next) {
  std::vector<std::pair<std::string, std::string>> texts;
  std::size_t copied = 0;  // of the original of the last text
  for (std::size_t i = 0; i < mentions.list.size(); ++i) {
    const SizeMention& mention = mentions.list[i];
    const std::string_view original = text_at(container, mention.pointer);
    if (texts.empty() || texts.back().first != mention.pointer) {
      texts.emplace_back(mention.pointer, "");
      copied = 0;
    }
    std::string& text = texts.back().second;
    text += original.substr(copied, mention.begin - copied);
    text += std::to_string(value_of(next, mention.quantity));
    copied = mention.begin + mention.length;
    if (i + 1 == mentions.list.size() || mentions.list[i + 1].pointer != mention.pointer) {
      text += original.substr(copied);
    }
  }
  std::erase_if(texts, [&](const auto& each) { return text_at(container, each.first) == each.second; });
  return texts;
}

}  // namespace plimsoll::workloads
