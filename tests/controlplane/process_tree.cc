#include "tests/controlplane/process_tree.h"

#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace plimsoll::testing {
namespace {

struct Stat {
  char state = '\0';
  pid_t parent = 0;
};

// Fields 3 and 4 of proc(5)'s stat; the name before them may hold spaces and brackets. State 0: no such
// process.
Stat stat_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::stringstream text;
  text << file.rdbuf();
  const std::string line = text.str();
  const std::size_t name_end = line.rfind(')');
  Stat stat;
  if (name_end != std::string::npos) {
    std::istringstream fields(line.substr(name_end + 1));
    fields >> stat.state >> stat.parent;
  }
  return stat;
}

}  // namespace

bool process_ended(pid_t pid) {
  const char state = stat_of(pid).state;
  return state == '\0' || state == 'Z' || state == 'X';
}

bool wait_until_ended(pid_t pid, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!process_ended(pid)) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", failure)) {
    const std::string name = entry.path().filename().string();
    if (std::isdigit(static_cast<unsigned char>(name.front())) != 0 &&
        stat_of(std::stoi(name)).parent == pid) {
      children.push_back(std::stoi(name));
    }
  }
  return children;
}

}  // namespace plimsoll::testing
