#include "estimator/swap/footprint.h"

namespace plimsoll::estimator::inline swap {

Footprint footprint_of(const TransformerTraining& training) {
  const Bytes one{training.parameters};
  constexpr std::int64_t kStashedWidth = 12;  // elements of 2 bytes, by token, layer and hidden size
  return {.weights = one * 2,
          .gradients = one * 2,
          .optimizer = one * 12,
          .stash = Bytes{kStashedWidth * 2} * training.hidden * training.samples * training.tokens *
                   training.layers,
          .buffer = one * 4};
}

double training_days(double floating_point_operations, double per_second) {
  constexpr double kSecondsPerDay = 86'400;
  return floating_point_operations / per_second / kSecondsPerDay;
}

}  // namespace plimsoll::estimator::swap
