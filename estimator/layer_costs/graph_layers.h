// layers_of_graph(): the layers of an exported model (docs/graph.md): each is cut out of the recorded iteration (graph_cut.h).
//
//   Result<ProfiledLayers> layers = layers_of_graph(request, training, host);
//
// Pure; any thread.
#pragma once

#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/layer_costs/profiled_layers.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline layer_costs {

// `training`: as the layers compute. It and what the request points to must outlive the result. Errors: kUnsupported for a graph
// whose layers are no single chain, or a card without known times; those of select_trace() and run_trace().
Result<ProfiledLayers> layers_of_graph(const EstimateRequest& request, const crds::TrainingSpec& training,
                                       const HostTraining& host);

}  // namespace plimsoll::estimator::layer_costs
