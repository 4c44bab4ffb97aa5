// BetweenIterations: what a training loop runs after an iteration's step and before the next zero_grad(), while the
// last gradients and inputs are there: a validation pass (eval() and no_grad()), or saving a checkpoint. A value.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace plimsoll::estimator::inline trace {

struct BetweenIterations {
  enum class Kind : std::uint8_t { kValidation, kCheckpoint };
  Kind kind = Kind::kValidation;
  Bytes inputs{};  // of the last iteration
};

}  // namespace plimsoll::estimator::trace
