// split_trace(): the trace of one trainer of a tensor parallel group, from the trace of the whole model.
// Layers are split by output columns or by input rows, as by Megatron-LM (arXiv 1909.08053, section 3) and
// DTensor's ColwiseParallel and RowwiseParallel. The result is an ordinary trace.
//
//   Result<SplitTrace> mine = split_trace(trace, 64, {.ways = 4, .rank = 0, .columns = {"*.up"},
//                                                     .rows = {"*.down"}});
//
// The layers determine which dimension of which tensor is split, operator by operator (split_rules.h). A
// partial result is followed by an all-reduce, which works on a copy
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
  // Modules by the end of their path; `*` matches any one name: "up", "*.mlp.up". If both lists are empty,
  // the layers with usual names are split (kUsualColumns, kUsualRows).
  std::vector<std::string> columns{};
  std::vector<std::string> rows{};
  Budget* budget = nullptr;  // split_trace() throws its BudgetExceeded
};

struct SplitTrace {
  Trace trace;
  std::vector<bool> split_parameters;  // indexed as Trace::parameters
  bool uneven = false;                 // ranks have parts of different sizes, as torch.chunk makes them
  std::string note;                    // for users: which layers were split, if none was named
};

// Errors: kInvalid if a pattern matches no layer, or no layer was named and none has a usual name;
// kUnsupported if an operator cannot work on a split tensor, naming it and its module.
Result<SplitTrace> split_trace(const Trace& trace, std::int64_t batch, const TensorSplit& split);

}  // namespace plimsoll::estimator::parallel
