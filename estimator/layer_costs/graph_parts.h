// graph_parts(): which layer of an exported model each operator belongs to. The layers are those of trainer/plimsoll/harmony/layers.py: the
// children of an nn.Sequential, else what comes before the repeated blocks, each block ("transformer.h.3"), and what comes after
// with the loss.
//
//   Result<GraphParts> parts = graph_parts(trace, budget);
//   Result<GraphCut> cut = parts ? GraphCut::of(trace, *parts, budget) : parts.error();
//
// Pure; any thread.
#pragma once

#include "base/budget.h"
#include "base/result.h"
#include "estimator/layer_costs/graph_cut.h"
#include "estimator/trace/trace.h"

namespace plimsoll::estimator::inline layer_costs {

// Errors: kUnsupported without repeated blocks, with several lists of them, or where they do not run one after the other.
Result<GraphParts> graph_parts(const Trace& trace, Budget* budget);

}  // namespace plimsoll::estimator::layer_costs
