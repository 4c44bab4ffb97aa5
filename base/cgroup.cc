#include "base/cgroup.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/number.h"

namespace plimsoll {
namespace {

// Smaller limits are ignored as mistakes: no Plimsoll server can run within them.
constexpr Bytes kMinMemory = 16_MiB;
constexpr double kMinCpus = 0.01;

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) {
    parts.push_back(part);
  }
  return parts;
}

bool holds(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string first_line(const std::string& path) {
  const std::vector<std::string> lines = lines_of(path);
  return lines.empty() ? std::string() : lines.front();
}

// Where a controller's hierarchy is mounted, and the process's place in it.
struct Hierarchy {
  std::string mount_point;
  std::string group;  // below it; "" or "/a/b"
};

// The group's path as the mount shows it: a container may see no more than its own part of the hierarchy.
std::string below_mount(const std::string& group, const std::string& mount_root) {
  if (!group.starts_with('/') || group.find("/..") != std::string::npos) {
    return "";  // none, or outside of what the cgroup namespace shows
  }
  if (mount_root == "/") {
    return group == "/" ? "" : group;
  }
  const bool inside =
      group.starts_with(mount_root) && (group.size() == mount_root.size() || group[mount_root.size()] == '/');
  return inside ? group.substr(mount_root.size()) : "";
}

// `controller`: of v1; empty: the hierarchy of v2.
std::optional<Hierarchy> find_hierarchy(const std::string& root, const std::string& controller) {
  std::optional<std::string> group;
  for (const std::string& line : lines_of(root + "/proc/self/cgroup")) {  // "4:cpu,cpuacct:/path"
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? controllers.empty() : holds(split(controllers, ','), controller)) {
      group = line.substr(second + 1);
    }
  }
  if (!group) {
    return std::nullopt;
  }
  // "31 23 0:28 ROOT MOUNTPOINT OPTIONS [tags...] - TYPE SOURCE SUPEROPTIONS"
  for (const std::string& line : lines_of(root + "/proc/self/mountinfo")) {
    const std::vector<std::string> words = split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) {
      continue;
    }
    const bool matches = controller.empty() ? dash[1] == "cgroup2"
                                            : dash[1] == "cgroup" && holds(split(dash[3], ','), controller);
    if (matches) {
      return Hierarchy{.mount_point = root + words[4], .group = below_mount(*group, words[3])};
    }
  }
  return std::nullopt;
}

// Calls `look` with the folder of the process's group and of each above it.
template <class Look>
void walk_up(const std::optional<Hierarchy>& hierarchy, const Look& look) {
  if (!hierarchy) {
    return;
  }
  std::string group = hierarchy->group;
  for (;;) {
    look(hierarchy->mount_point + group + "/");
    if (group.empty()) {
      return;
    }
    group.resize(group.rfind('/'));
  }
}

// The time that the group may use in each period, both in microseconds; other texts ("max", "-1") set no limit.
void lower_cpus(ProcessLimits& limits, const std::string& quota, const std::string& period) {
  const double used = parse_number<double>(quota).value_or(0);
  const double of = parse_number<double>(period).value_or(0);
  if (used > 0 && of > 0) {
    limits.cpus = std::min(limits.cpus, std::max(used / of, kMinCpus));
  }
}

void lower_memory(ProcessLimits& limits, const std::string& text) {  // "max", or bytes
  if (const std::optional<std::int64_t> bytes = parse_number<std::int64_t>(text);
      bytes && Bytes{*bytes} >= kMinMemory) {
    limits.memory = std::min(limits.memory, Bytes{*bytes});
  }
}

}  // namespace

int ProcessLimits::whole_cpus() const {
  return std::max(1, static_cast<int>(std::ceil(cpus)));
}

Machine this_machine() {
  Machine machine;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const bool known = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  machine.cpus = std::max(1, known ? CPU_COUNT(&allowed) : static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
  machine.memory = Bytes{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGE_SIZE);
  return machine;
}

ProcessLimits process_limits(const std::string& root, const Machine& machine) {
  ProcessLimits limits{.cpus = static_cast<double>(machine.cpus), .memory = machine.memory};
  walk_up(find_hierarchy(root, ""), [&](const std::string& folder) {
    const std::vector<std::string> quota = split(first_line(folder + "cpu.max"), ' ');  // "max 100000"
    if (quota.size() == 2) {
      lower_cpus(limits, quota[0], quota[1]);
    }
    // Beyond memory.high the kernel slows the process down until it frees memory: a limit as well.
    lower_memory(limits, first_line(folder + "memory.max"));
    lower_memory(limits, first_line(folder + "memory.high"));
  });
  walk_up(find_hierarchy(root, "cpu"), [&](const std::string& folder) {
    lower_cpus(limits, first_line(folder + "cpu.cfs_quota_us"), first_line(folder + "cpu.cfs_period_us"));
  });
  walk_up(find_hierarchy(root, "memory"), [&](const std::string& folder) {
    lower_memory(limits, first_line(folder + "memory.limit_in_bytes"));
  });
  return limits;
}

}  // namespace plimsoll
