// host_update_seconds(): the time of an optimizer's step for a layer on the host, which is bound by the host's memory.
//
//   double seconds = host_update_seconds({.parameters = 12, .weights = w, .state = k});
//
// Pure; any thread.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace plimsoll::estimator::inline speed {

struct HostUpdate {
  std::int64_t parameters = 0;  // tensors
  Bytes weights;                // as the host keeps them; their gradients take as much
  Bytes state;
  Bytes moved{};         // the weights in the type that moves, where that is another one
  double bandwidth = 0;  // bytes a second that such updates were measured to read and write; 0: not known
};

// Weights and state are read and written, gradients are read. Where another type moves, gradients come in it and are converted, and
// the weights are converted to it. Without a measured bandwidth the rate is fitted to the steps that Harmony's authors measured
// (tests/estimator/swap/profiles): docs/harmony.md, Profiles, says how far it is from them.
double host_update_seconds(const HostUpdate& update);

}  // namespace plimsoll::estimator::speed
