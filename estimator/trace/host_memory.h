// HostMemory: what a trainer keeps in its host's memory, besides what every process of PyTorch takes. A value.
#pragma once

#include "base/bytes.h"

namespace plimsoll::estimator::inline trace {

struct HostMemory {
  Bytes parameters{};  // offloaded ones, with the fp32 copy that an optimizer on the host updates
  Bytes gradients{};   // that were moved to that optimizer
  Bytes
      optimizer_state{};  // offloaded; or paged: CUDA's managed memory, which moves to the host when the GPU is full
  Bytes checkpoint{};  // what is there at once of a checkpoint that is saved; of a full one, on rank 0
  Bytes total() const { return parameters + gradients + optimizer_state + checkpoint; }
};

}  // namespace plimsoll::estimator::trace
