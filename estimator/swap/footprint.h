// The memory that training a transformer takes by parts, and how long its training takes: the tables of Harmony's talk
// (HotOS'21). Pure; any thread.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace plimsoll::estimator::inline swap {

struct TransformerTraining {
  std::int64_t parameters = 0;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t tokens = 0;  // of a sample
  std::int64_t samples = 0;
};

// In mixed precision with Adam, as ZeRO (arXiv 1910.02054, section 3) counts it: weights and gradients in 16 bits; 12 bytes
// a parameter for the optimizer, its fp32 weights among them; a fused fp32 buffer for the gradients' norm; and 12 times the
// hidden size for each token and layer of what backward needs.
struct Footprint {
  Bytes weights{};
  Bytes gradients{};
  Bytes optimizer{};
  Bytes stash{};
  Bytes buffer{};
  Bytes total() const { return weights + gradients + optimizer + stash + buffer; }
};
Footprint footprint_of(const TransformerTraining& training);

// Days of `floating_point_operations` at so many a second.
double training_days(double floating_point_operations, double per_second);

// Of a GTX 1080 Ti in fp32: 3,584 cores, two operations a clock of 1,480 MHz. The talk's table uses this peak, so that its
// days are a lower bound.
inline constexpr double kPeak1080Ti = 3584.0 * 2 * 1.480e9;

}  // namespace plimsoll::estimator::swap
