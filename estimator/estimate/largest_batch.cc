#include "estimator/estimate/largest_batch.h"

#include <algorithm>

#include "estimator/estimate/estimate.h"

namespace plimsoll::estimator::inline estimate {
namespace {

constexpr std::int64_t kMaxSamples = std::int64_t{1} << 32;

}  // namespace

Result<std::int64_t> largest_batch(const EstimateRequest& request, Bytes capacity) {
  crds::TrainingSpec training = *request.training;
  EstimateRequest at = request;
  at.training = &training;
  // The batch is a multiple of the number of micro-batches.
  const std::int64_t step = std::max<std::int64_t>(1, training.gradient_accumulation);
  const auto bound = [&](std::int64_t steps) -> Result<Bytes> {
    training.batch_size_per_trainer = steps * step;
    const Result<Estimate> estimate = estimate_memory(at);
    return estimate ? Result<Bytes>(estimate->peak.upper_bound) : estimate.error();
  };
  std::int64_t fits = 0;
  std::int64_t too_many = kMaxSamples / step + 1;
  Bytes below;                  // upper bound at `fits`
  Bytes beyond = Bytes::max();  // upper bound at `too_many`
  std::int64_t guess =
      std::clamp<std::int64_t>(request.training->batch_size_per_trainer / step, 1, too_many - 1);
  for (int tries = 0; too_many - fits > 1; ++tries) {
    const Result<Bytes> bytes = bound(guess);
    if (!bytes) {
      return bytes.error();
    }
    if (*bytes <= capacity) {
      fits = guess;
      below = *bytes;
    } else {
      too_many = guess;
      beyond = *bytes;
    }
    // Memory is nearly linear in the batch, so interpolation between the two ends needs few tries. Every
    // third try halves the interval, so that the search also ends for any other curve.
    if (beyond == Bytes::max()) {
      guess = std::min(fits * 2 + 1, too_many - 1);
    } else {
      const double share = static_cast<double>((capacity - below).count) /
                           std::max(1.0, static_cast<double>((beyond - below).count));
      guess = fits + static_cast<std::int64_t>(share * static_cast<double>(too_many - fits));
      if (tries % 3 == 2 || fits == 0) {
        guess = fits + (too_many - fits) / 2;
      }
    }
    guess = std::clamp(guess, fits + 1, std::max(fits + 1, too_many - 1));
  }
  return fits * step;
}

}  // namespace plimsoll::estimator::estimate
