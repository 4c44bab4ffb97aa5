// What to run on this machine for a pod: the pure half of the node agent.
//
//   Result<LocalCommand> command =
//       command_of(pod, {.directory = scratch, .config_maps = maps, .port_for = port_for});
//
// One container, no init containers. What cannot be had here (a secret, another kind of volume) is an error
// that names it, rather than a pod that runs otherwise than its manifest says. Any thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"

namespace plimsoll::testing {

struct LocalCommand {
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;
  std::map<std::string, std::string> files;  // to be written first, path to content
  std::vector<std::string> directories;      // to be made first
};

struct LocalPlace {
  std::string directory;  // the pod's own
  // The ConfigMap of a name in the pod's namespace. Errors: kNotFound.
  std::function<Result<Json>(const std::string&)> config_map;
  // The port on this machine that stands for a port of the host `address`; the same for the same two.
  std::function<std::string(const std::string& address, const std::string& port)> port_for;
};

Result<LocalCommand> command_of(const Json& pod, const LocalPlace& place);

// Where the container is told to write its termination message.
std::string termination_log(const LocalPlace& place);

// "$(NAME)" by what was said of NAME, "$$" as "$"; unknown names stay, as Kubernetes has it.
std::string expand(const std::string& text, const std::map<std::string, std::string>& variables);

// At most `lines` lines and `bytes` bytes of the end of a text: what FallbackToLogsOnError takes of a log.
std::string tail_of(const std::string& text, std::size_t lines, std::size_t bytes);

}  // namespace plimsoll::testing
