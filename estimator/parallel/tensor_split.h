// split_trace(): what one of several trainers runs of a recorded iteration whose layers they share (tensor
// parallelism): layers split by output columns or by input rows, as Megatron-LM (arXiv 1909.08053, section 3)
// and DTensor's ColwiseParallel and RowwiseParallel do. The result is a trace like any other.
//
//   Result<SplitTrace> mine = split_trace(trace, 64, {.ways = 4, .rank = 0, .columns = {"*.up"},
//                                                     .rows = {"*.down"}});
//
// Which dimension of which tensor is split follows from the layers named, operator by operator
// (split_rules.h). Where a sum over the trainers is due the result has an all-reduce, which works on a copy
// (torch.distributed._functional_collectives). Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/result.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline parallel {

struct TensorSplit {
  std::int64_t ways = 1;
  std::int64_t rank = 0;
  // Modules by the end of their path, `*` is any one name: "up", "*.mlp.up". None at all: the layers that
  // have the usual names (usual_split_layers).
  std::vector<std::string> columns{};
  std::vector<std::string> rows{};
  Budget* budget = nullptr;  // whose BudgetExceeded split_trace() throws
};

struct SplitTrace {
  Trace trace;
  std::vector<bool> split_parameters;  // by Trace::parameters
  bool uneven = false;                 // trainers differ: torch.chunk's parts
  std::string taken;                   // where no layer was named: which ones were split, for people
};

// Errors: kInvalid where a pattern matches no layer, or none was named and none has a usual name;
// kUnsupported where an operator cannot work on a split tensor, naming it and its module.
Result<SplitTrace> split_trace(const Trace& trace, std::int64_t batch, const TensorSplit& split);

}  // namespace plimsoll::estimator::parallel
