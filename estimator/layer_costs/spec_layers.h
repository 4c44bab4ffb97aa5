// layers_of_spec(): the layers of a transformer that a spec or a config.json describes: the embedding, each block, and the final norm
// with the head. Each is lowered as a pipeline stage of its own (transformer/transformer_part.h).
//
//   Result<ProfiledLayers> layers = layers_of_spec(request, training, host);
//   layers->costs(layers->kind_of[3], 4);      // the block 2, with 4 samples
//
// Pure; any thread.
#pragma once

#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/layer_costs/profiled_layers.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline layer_costs {

// `training`: as the layers compute. It and what the request points to must outlive the result. Errors: kUnsupported for a model whose layers are no single chain, or a card without known times; those of
// transformer_spec() and lower_transformer().
Result<ProfiledLayers> layers_of_spec(const EstimateRequest& request, const crds::TrainingSpec& training,
                                      const HostTraining& host);

}  // namespace plimsoll::estimator::layer_costs
