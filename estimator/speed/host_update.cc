#include "estimator/speed/host_update.h"

namespace plimsoll::estimator::inline speed {
namespace {

// Bytes a second: the median of the published layers of more than 1 MiB is 22.3e9.
constexpr double kRate = 22e9;
// Of a parameter, by the published norms, which have two and few bytes: 0.36 to 0.40 ms.
constexpr double kParameterSeconds = 0.18e-3;

}  // namespace

double host_update_seconds(const HostUpdate& update) {
  constexpr std::int64_t kTouchedWeights = 3;  // read, written; gradients read
  constexpr std::int64_t kTouchedState = 2;
  const Bytes converted =
      update.moved > Bytes{} ? (update.moved + update.weights) * 2 : Bytes{};  // gradients, weights
  const Bytes touched = update.weights * kTouchedWeights + update.state * kTouchedState + converted;
  if (update.bandwidth > 0) {
    return static_cast<double>(touched.count) / update.bandwidth;
  }
  return static_cast<double>(update.parameters) * kParameterSeconds +
         static_cast<double>(touched.count) / kRate;
}

}  // namespace plimsoll::estimator::speed
