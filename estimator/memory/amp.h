// AMP's published training-time estimate (SoCC'23, sections 8.2 and 9.2.1), kept as a method of its own for
// comparison with the paper. Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>

#include "base/bytes.h"
#include "estimator/graph/operator_graph.h"

namespace plimsoll::estimator {

// For one batch size: the larger of
//   forward:  the sum of all node outputs that require a gradient;
//   backward: over the reversed nodes, the largest sum of outputs that are still used downstream.
// Each output counts in full, whether or not it shares its memory with another, and the loss is no node of
// the graph, as in the paper's torch.fx trace of the model.
Bytes amp_training_bytes(const OperatorGraph& graph, std::int64_t batch);

// The same at the true batch size, predicted by a straight line through ten micro batch sizes (Finding 12).
Bytes amp_predicted_training_bytes(const OperatorGraph& graph, std::int64_t batch);
// That line, for any way to tell the training bytes of a batch size.
Bytes amp_predicted_bytes(const std::function<Bytes(std::int64_t batch)>& training_bytes, std::int64_t batch);

}  // namespace plimsoll::estimator
