// Text output: aligned columns, and bars. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "crds/training_job.h"
#include "estimator/estimate/estimate.h"

namespace plimsoll::cli {

// Columns padded to their widest cell, two blanks between them; columns whose first row
// below the heading begins with a digit are aligned to the right.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> heading) : rows_{std::move(heading)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  // Each line begins with `indent`.
  std::string to_string(const std::string& indent) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// A bar of `width` cells, of which `share` (0..1) is filled.
std::string bar(double share, int width, bool unicode);

// The breakdown at the peak as bars against the card's memory, largest part first; parts of zero are left
// out.
std::string breakdown_bars(const estimator::Breakdown& breakdown, Bytes capacity, bool unicode);

// "  before the first iteration at most 1.2 GiB, made on the CPU (on the GPU 25.1 GiB)\n"; empty where no model is sharded.
std::string initial_line(const estimator::Estimate& estimate, crds::ParallelStrategy strategy);

// "  host memory 12.0 GiB: optimizer state 8.0 GiB, parameters 4.0 GiB\n"; empty where a trainer needs none.
std::string host_memory_line(const estimator::HostMemory& host);

// With so many digits after the point.
std::string decimal_text(double value, int digits);
// "12.3 ms", "1.24 s"
std::string milliseconds_text(double milliseconds);
std::string percent_text(double share);

}  // namespace plimsoll::cli
