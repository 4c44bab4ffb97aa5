// layer_sizes(): bytes of a layer that do not depend on the microbatch: what moves to a GPU, and what the host keeps.
//
//   Result<LayerSizes> sizes = layer_sizes(trace, shapes, {.optimizer = optimizer});
//
// Pure; any thread.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "estimator/trace/optimizer.h"
#include "estimator/trace/shapes.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline layer_costs {

struct LayerSizes {
  Bytes weights;       // as they move
  Bytes host_weights;  // as the host keeps them
  Bytes buffers;
  Bytes state;                  // of the optimizer, without its step counts
  Bytes input;                  // of one sample
  std::int64_t parameters = 0;  // tensors
};

struct HostTraining {
  OptimizerRun optimizer;   // on the host
  bool keeps_fp32 = false;  // weights move in 16 bits, and the host has them in fp32
};

// All but the input. Parameters that share a storage count once; so do equal ones that a trace has as one, as often as there are.
LayerSizes layer_sizes(const Trace& trace, const TraceShapes& shapes, const HostTraining& host);

}  // namespace plimsoll::estimator::layer_costs
