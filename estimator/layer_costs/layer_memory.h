// layer_memory(): what a layer takes when it is alone on a GPU, from the arrival of its weights to its end, as
// trainer/plimsoll/harmony/profile.py measures it: once forward without autograd, and once backward with the forward pass that
// it repeats and a gradient that an earlier microbatch has left.
//
//   Result<LayerMemory> memory = layer_memory({.trace = &recording.trace, .held = {recording.received}}, producer, {.batch = 4});
//   memory->forward; memory->backward;
//
// The trace is executed as an iteration of a model (execute/run_trace.h). What differs is what Python holds: the layer's input, its
// result and the result's gradient, until a microbatch has ended; and nothing of the optimizer is there. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/bytes.h"
#include "base/result.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline layer_costs {

struct LayerTrace {
  const Trace* trace = nullptr;    // of the layer alone, for one microbatch
  std::vector<std::int32_t> held;  // storages; -1: none
  // Forward operators from here on are the loss, which is no part of a layer's forward pass; -1: none.
  std::int32_t loss_begin = -1;
};

struct LayerMemory {
  Bytes forward;
  Bytes backward;
};

struct LayerMemoryOptions {
  std::int64_t batch = 1;     // samples of a microbatch
  bool halve_floats = false;  // as TraceRunRequest has it, and the four below
  std::string gpu_family = {};
  std::optional<Bytes> convolution_workspace = {};
  bool lenient = false;
  Budget* budget = nullptr;  // throws its BudgetExceeded
};

// Errors: those of run_trace().
Result<LayerMemory> layer_memory(const LayerTrace& layer, const TraceProducer& producer,
                                 const LayerMemoryOptions& options);

}  // namespace plimsoll::estimator::layer_costs
