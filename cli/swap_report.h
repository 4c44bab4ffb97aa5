// A swap plan for people: how long an iteration takes, what it moves, what each GPU does; and its timeline as an HTML page. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "estimator/swap/planner.h"
#include "estimator/swap/simulator.h"

namespace plimsoll::cli {

struct SwapReport {
  estimator::PlannedSwap planned;
  estimator::SwapTimes times;
  std::vector<estimator::SwapEvent> timeline;
  std::vector<Bytes> task_memory;  // a bound for each of packed_tasks(); of the page
  estimator::SwapMachine machine;
  Bytes capacity{};  // of a GPU; zero: not asked for
  std::size_t layers = 0;
  double elapsed_seconds = 0;  // of the search
  std::string about{};         // what a derived profile is of; may be empty
};

std::string swap_report_text(const SwapReport& report);

// A page that needs nothing else: one row for each GPU and stream, to zoom and to point at, the memory of each GPU over time, and
// the volumes; light or dark, as the reader's system is. A keyboard does all but pointing, and tables say what the pictures show.
std::string swap_report_page(const SwapReport& report);

}  // namespace plimsoll::cli
