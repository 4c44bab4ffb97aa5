// run_graph(): the iteration of a model that is an exported graph, on each rank that differs, and the estimate of such a
// run. Pure; any thread.
//
//   Result<GraphRun> run = run_graph(request);
//   Estimate estimate = estimate_of(*run, request, replays);
#pragma once

#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "estimator/estimate/floor.h"
#include "estimator/estimate/peak.h"
#include "estimator/estimate/ranks.h"
#include "estimator/trace/trace.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline estimate {

// Refers to the request's graph.
struct GraphRun {
  const Trace* trace = nullptr;                   // of the whole model
  std::unique_ptr<const Trace> with_tables = {};  // owns it, if the job's tables are part of it
  RankRuns ranks;                                 // of `trace`
  Bytes dense_parameters;
  bool beyond_any_machine = false;  // there are no ranks then
};

struct SelectedTrace {
  const Trace* trace = nullptr;
  bool halve_floats = false;
};

// The trace of the request's graph for the device and the precision. TF32 uses the memory of FP32; if all values of the FP32 trace
// are fp32, pure BF16 is the same with half the width. Errors: kUnsupported if the graph has none.
Result<SelectedTrace> select_trace(const EstimateRequest& request);

// convolution_family() of the request's card; empty without one.
std::string convolution_family_of(const EstimateRequest& request);

// Errors: kUnsupported if the graph has no trace for the device or precision (with the command to export
// one), or has an operator without a rule; kInvalid for a batch size for which the graph is not valid.
Result<GraphRun> run_graph(const EstimateRequest& request);

// Of a request that differs from the run's in the GPU's memory, the capacity or the embeddings only.
Estimate estimate_of(const GraphRun& run, const EstimateRequest& request, KnownReplays& known);

// At the peak, at most ten, largest first. The run must not be beyond any machine.
std::vector<LiveTensor> largest_live(const GraphRun& run);

// The same by AMP's published formula.
Result<Estimate> estimate_by_amp(const GraphRun& run, const EstimateRequest& request);

}  // namespace plimsoll::estimator::estimate
