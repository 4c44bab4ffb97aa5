// record(): the trace of one training iteration of a forward graph, as the exporter would record it from real
// PyTorch: forward, then backward in reverse order, with what autograd saves (autograd_rules.h), every
// gradient, and when each block is freed. Specs and exported graphs are then executed by the same code
// (estimator/execute/run_trace.h).
//
//   Recording recording = record(graph, {.device = Device::kCuda, .batch = 32, .input_batch = 32});
//   Result<TraceRun> run = run_trace(recording.trace, producer, {.batch = 32});
//
// A gradient is added to in place only if nothing else references it; otherwise the sum is a new block
// (torch/csrc/autograd/input_buffer.cpp). Pure; any thread.
#pragma once

#include <cstdint>

#include "base/budget.h"
#include "estimator/spec/forward_graph.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline spec {

struct RecordOptions {
  Device device = Device::kCuda;
  std::int64_t batch = 1;              // samples per micro-batch; the trace is valid for no other
  std::int64_t input_batch = 1;        // samples whose inputs are on the device
  std::int64_t batches_in_flight = 1;  // batches whose inputs are on the device at once
  bool keeps_result = false;  // the graph's result is kept for the next stage until its gradient arrives
  // The forward pass is within torch.autocast, which keeps its 16-bit copies of trained fp32 parameters until it ends
  // (autocast_mode.cpp: cached_cast). torch.compile's graphs make the copies themselves, and keep none.
  bool caches_casts = false;
  Budget* budget = nullptr;  // pays for the trace and must outlive it
};

struct Recording {
  Trace trace;
  BudgetVector<TensorId> tensor_of_storage;  // the graph's tensor, or the one whose gradient it is
  // Storages that a stage of a pipeline exchanges with its neighbours; -1: none.
  std::int32_t received = -1;           // from the previous stage
  std::int32_t result = -1;             // for the next stage; of the last one, what the model returns
  std::int32_t received_gradient = -1;  // of the result
  std::int32_t sent_gradient = -1;      // of what was received
};

Recording record(const ForwardGraph& graph, const RecordOptions& options);

}  // namespace plimsoll::estimator::spec
