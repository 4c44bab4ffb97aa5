// layer_rows(): the operators, storages and tensors of one layer of a GraphCut, renumbered as a trace of their own, with the times at
// which storages are freed. Inside GraphCut::layer().
//
//   LayerCut cut = layer_rows(graph_cut, 3);
//
// Pure; any thread.
#pragma once

#include <cstddef>

#include "estimator/layer_costs/graph_cut.h"

namespace plimsoll::estimator::inline layer_costs {

// `layer` has operators.
LayerCut layer_rows(const GraphCut& cut, std::size_t layer);

}  // namespace plimsoll::estimator::layer_costs
