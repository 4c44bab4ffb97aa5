#include "operator/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <sstream>

#include "base/number.h"
#include "metrics/families.h"

namespace plimsoll::process {
namespace {

// Of proc(5), counted from the state, which is the first field after the program's name.
enum Field : std::size_t {
  kUserTicks = 11,
  kSystemTicks = 12,
  kThreads = 17,
  kStartTicks = 19,  // since the machine was started
  kVirtualBytes = 20,
  kResidentPages = 21,
};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The fields of /proc/self/stat; none when it is not as proc(5) says. The program's name may hold spaces and brackets.
std::vector<double> fields_of(const std::string& stat) {
  std::vector<double> fields;
  const std::size_t name_end = stat.rfind(')');
  if (name_end == stat.npos) {
    return fields;
  }
  std::istringstream words(stat.substr(name_end + 1));
  for (std::string word; words >> word;) {
    fields.push_back(parse_number<double>(word).value_or(0));
  }
  if (fields.size() <= kResidentPages) {
    fields.clear();
  }
  return fields;
}

// When the machine was started, in Unix time.
std::optional<double> boot_time(const std::string& stat) {
  std::istringstream lines(stat);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("btime ")) {
      return parse_number<double>(line.substr(6));
    }
  }
  return std::nullopt;
}

std::optional<double> open_files(const std::string& folder) {
  std::error_code problem;
  std::filesystem::directory_iterator entry(folder, problem);
  double count = 0;
  for (; !problem && entry != std::filesystem::directory_iterator(); entry.increment(problem)) {
    ++count;
  }
  return problem ? std::nullopt : std::optional(count);
}

std::optional<double> max_open_files() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) {
    return std::nullopt;
  }
  return files.rlim_cur == RLIM_INFINITY ? std::numeric_limits<double>::infinity()
                                         : static_cast<double>(files.rlim_cur);
}

}  // namespace

std::vector<prometheus::MetricFamily> ProcessMetrics::Collect() const {
  std::vector<prometheus::MetricFamily> families = {metrics::gauges(
      "plimsoll_build_info",
      {{1, {{"version", PLIMSOLL_VERSION}, {"commit", PLIMSOLL_COMMIT}, {"compiler", PLIMSOLL_COMPILER}}}})};
  const auto add = [&families](metrics::Of<metrics::Type::kGauge> metric, std::optional<double> value) {
    if (value) {
      families.push_back(metrics::gauges(metric, {{*value}}));
    }
  };
  const std::vector<double> stat = fields_of(text_of(root_ + "/proc/self/stat"));
  if (!stat.empty()) {
    const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
    const auto page = static_cast<double>(::sysconf(_SC_PAGE_SIZE));
    families.push_back(
        metrics::counters("process_cpu_seconds_total", {{(stat[kUserTicks] + stat[kSystemTicks]) / ticks}}));
    add("process_resident_memory_bytes", stat[kResidentPages] * page);
    add("process_virtual_memory_bytes", stat[kVirtualBytes]);
    add("process_threads", stat[kThreads]);
    if (const std::optional<double> boot = boot_time(text_of(root_ + "/proc/stat"))) {
      add("process_start_time_seconds", *boot + stat[kStartTicks] / ticks);
    }
  }
  add("process_open_fds", open_files(root_ + "/proc/self/fd"));
  add("process_max_fds", max_open_files());
  return families;
}

}  // namespace plimsoll::process
