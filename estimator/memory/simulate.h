// simulate(): one steady-state training iteration of one trainer, executed symbolically: forward, loss,
// backward in reverse creation order, optimizer step; gradients freed before and after (zero_grad to none).
// Storages are counted once, a value lives until its last use unless autograd saved it, and a gradient buffer
// is added to in place only by its sole owner. Several micro-batches run one after another, or as the
// pipeline's schedule says. Pure; any thread.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "crds/training_job.h"
#include "estimator/graph/operator_graph.h"
#include "estimator/memory/estimate.h"
#include "estimator/memory/ledger.h"
#include "estimator/memory/trace_optimizer.h"

namespace plimsoll::estimator {

// A spec does not say which PyTorch runs it: the newest that the rules were checked with.
inline constexpr TorchVersion kSpecTorchVersion = 215;

struct IterationRequest {
  const crds::TrainingSpec* training = nullptr;
  std::int64_t replicas = 1;           // of the model, that share what the strategy says
  std::int64_t rank = 0;               // among them
  std::int64_t stage = 0;              // of the pipeline
  std::int64_t batches_in_flight = 1;  // whose inputs are on the device at once
  Device device = Device::kCuda;
  bool keeps_fp32 = false;   // the optimizer updates an fp32 copy of half parameters
  Budget* budget = nullptr;  // whose BudgetExceeded simulate() throws
};

// The graphs' tensors, all alive at once, must stay far from the end of 64 bits (`all_bytes`). `chunks`: the
// parts of the model that this stage holds; one without a pipeline.
// Blocks are marked with their tensor: its id, counted through the chunks.
Ledger simulate(const std::vector<const OperatorGraph*>& chunks, const IterationRequest& request);

// Every tensor of the graph at once: no moment of an iteration can need more than a small multiple of it.
Bytes all_bytes(const OperatorGraph& graph, std::int64_t batch, Budget* budget = nullptr);

}  // namespace plimsoll::estimator
