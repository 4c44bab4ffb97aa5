// simulate(): one steady-state training iteration, executed symbolically: forward, loss, backward in reverse
// creation order, optimizer step; gradients freed before and after (zero_grad to none). Storages are counted
// once, a value lives until its last use unless autograd saved it, and a gradient buffer is added to in place
// only by its sole owner. Pure; any thread.
#pragma once

#include "base/bytes.h"
#include "crds/training_job.h"
#include "estimator/graph/operator_graph.h"
#include "estimator/memory/estimate.h"
#include "estimator/memory/ledger.h"

namespace plimsoll::estimator {

struct IterationRequest {
  const crds::TrainingSpec* training = nullptr;
  std::int64_t trainers = 1;
  std::int64_t batches_in_flight = 1;  // whose inputs are on the device at once
  Device device = Device::kCuda;
};

// The graph's tensors, all alive at once, must stay far from the end of 64 bits (`all_bytes`).
Ledger simulate(const OperatorGraph& graph, const IterationRequest& request);

// Every tensor of the graph at once: no moment of an iteration can need more than a small multiple of it.
Bytes all_bytes(const OperatorGraph& graph, std::int64_t batch);

}  // namespace plimsoll::estimator
