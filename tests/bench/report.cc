#include "tests/bench/report.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "base/json/json.h"

namespace plimsoll::testing {

Report::Report(std::string bench, bool json) : bench_(std::move(bench)), json_(json) {
  if (!json_) {
    std::printf("%-30s %-17s %10s  %-9s %s\n", "case", "metric", "value", "unit", "aim, at most");
  }
}

void Report::add(const Measured& one) const {
  if (json_) {
    Json line(::Json::objectValue);
    line["bench"] = bench_;
    line["case"] = one.of;
    line["metric"] = one.metric;
    line["value"] = one.value;
    line["unit"] = one.unit;
    line["reference"] = one.reference ? Json(*one.reference) : Json();
    std::printf("%s\n", write_json(line).c_str());
  } else {
    std::printf("%-30s %-17s %10.4g  %-9s", one.of.c_str(), one.metric.c_str(), one.value, one.unit.c_str());
    if (one.reference) {
      std::printf(" %.4g%s", *one.reference, one.value > *one.reference ? "  MISSED" : "  MET");
    }
    std::printf("\n");
  }
  std::fflush(stdout);
}

bool read_arguments(int argc, char** argv, const Arguments& into) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--json") {
      *into.json = true;
      continue;
    }
    const auto of_name = [&](const auto& one) { return name == one.first; };
    const auto number = std::find_if(into.numbers.begin(), into.numbers.end(), of_name);
    const auto text = std::find_if(into.texts.begin(), into.texts.end(), of_name);
    if (++i == argc) {
      return false;
    }
    if (number != into.numbers.end()) {
      *number->second = std::atoi(argv[i]);
      if (*number->second < 1) {
        return false;
      }
    } else if (text != into.texts.end()) {
      *text->second = argv[i];
    } else {
      return false;
    }
  }
  return true;
}

double median_milliseconds(int repeat, const std::function<void()>& call) {
  std::vector<double> times;
  for (int i = 0; i < repeat; ++i) {
    const std::clock_t start = std::clock();
    call();
    times.push_back(1000.0 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

}  // namespace plimsoll::testing
