#include "tests/controlplane/binaries.h"

#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "tests/checkout.h"
#include "tests/controlplane/api_server.h"

namespace plimsoll::testing {
namespace {

bool is_program(const std::string& path) {
  return access(path.c_str(), X_OK) == 0;
}

std::string on_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string candidate = folder + "/" + name;
    if (!folder.empty() && is_program(candidate)) {
      return candidate;
    }
  }
  return {};
}

std::string without_end_of_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) {
    text.pop_back();
  }
  return text;
}

Result<std::string> look_up() {
  if (const char* refused = std::getenv("PLIMSOLL_NO_CONTROL_PLANE");
      refused != nullptr && *refused != '\0') {
    return Error(ErrorCode::kNotFound, "PLIMSOLL_NO_CONTROL_PLANE is set");
  }
  const CommandResult found = run_command({PLIMSOLL_SOURCE_DIR "/scripts/controlplane", "--print"});
  if (found.exit_code != 0) {
    return Error(ErrorCode::kNotFound, without_end_of_line(found.errors));
  }
  return without_end_of_line(found.output);
}

}  // namespace

const Result<std::string>& control_plane_folder() {
  static const Result<std::string> folder = look_up();
  return folder;
}

Result<std::string> find_program(const std::string& name) {
  const Result<std::string>& folder = control_plane_folder();
  if (folder && is_program(*folder + "/" + name)) {
    return *folder + "/" + name;
  }
  const std::string other = on_path(name);
  if (!other.empty()) {
    return other;
  }
  return Error(ErrorCode::kNotFound,
               folder ? name + " is neither in " + *folder + " nor on PATH" : folder.error().message);
}

std::string find_kubectl(ApiServerKind kind) {
  const char* chosen = std::getenv("PLIMSOLL_KUBECTL");
  if (chosen != nullptr && *chosen != '\0') {
    return chosen;
  }
  const Result<std::string>& folder = control_plane_folder();
  const std::string built = folder && is_program(*folder + "/kubectl") ? *folder + "/kubectl" : std::string();
  const std::string installed = on_path("kubectl");
  const bool built_first = kind == ApiServerKind::kReal || installed.empty();
  return built_first && !built.empty() ? built : installed;
}

}  // namespace plimsoll::testing
