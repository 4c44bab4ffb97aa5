// What a benchmark has measured, and how it tells it: a table for people, or with --json one object a line
// (docs/cli.md). Each figure is printed as soon as it is known.
//
//   Report report("shard", settings.json);
//   report.add({.of = "A x 128", .metric = "search", .value = 6.9, .unit = "ms", .reference = 15});
//
// One thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace plimsoll::testing {

struct Measured {
  std::string of;  // the case
  std::string metric;
  double value = 0;
  std::string unit = {};
  std::optional<double> reference = {};  // aimed at, at most
};

class Report {
 public:
  Report(std::string bench, bool json);
  void add(const Measured& one) const;

 private:
  std::string bench_;
  bool json_;
};

// What a benchmark may be told: --json, and names with a value after them.
struct Arguments {
  bool* json = nullptr;
  std::vector<std::pair<const char*, int*>> numbers = {};  // at least 1
  std::vector<std::pair<const char*, std::string*>> texts = {};
};
// False on what is unknown or lacks its value.
bool read_arguments(int argc, char** argv, const Arguments& into);

// Median milliseconds of a call, of this process' time on the processor: what is measured is one thread that
// waits for nothing.
double median_milliseconds(int repeat, const std::function<void()>& call);

}  // namespace plimsoll::testing
