// How far estimates are from what was measured. Pure; any thread.
//
//   errors.push_back(std::abs(percent_error(estimate->peak.allocated, row["allocated"].asInt64())));
//   EXPECT_LE(median(errors), 1);
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/bytes.h"

namespace plimsoll::estimator::testing {

// Above 0: the estimate is higher.
inline double percent_error(Bytes estimated, std::int64_t measured) {
  return 100.0 * static_cast<double>(estimated.count - measured) / static_cast<double>(measured);
}

// The upper of the two in the middle; 0 of none.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

}  // namespace plimsoll::estimator::testing
