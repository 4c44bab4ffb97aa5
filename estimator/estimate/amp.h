// AMP's published estimate of training-time memory (SoCC'23, sections 8.2 and 9.2.1), kept as a separate
// method for comparison with the paper. Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>

#include "base/bytes.h"
#include "base/result.h"
#include "estimator/trace/shapes.h"
#include "estimator/trace/trace.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline estimate {

// At one batch size: the sum of all node outputs of forward that require a gradient. (The paper takes the
// maximum of this sum and of what backward still uses, which is never larger.) Each output counts in full,
// even if it shares its memory with another. The loss is not a node, as in the paper's torch.fx trace of the
// model.
Bytes amp_training_bytes(const Trace& trace, std::int64_t batch);

// The same at the actual batch size, predicted by linear regression over ten micro-batch sizes (Finding 12).
Bytes amp_predicted_bytes(const std::function<Bytes(std::int64_t batch)>& training_bytes, std::int64_t batch);

// The complete estimate. `shapes`: only parameters are used. `training_bytes`: amp_training_bytes at any
// batch size. Errors: kUnsupported for an optimizer implementation that this PyTorch version does not have.
Result<Estimate> estimate_by_amp(const EstimateRequest& request, const Trace& trace,
                                 const TraceShapes& shapes, TorchVersion version,
                                 const std::function<Bytes(std::int64_t batch)>& training_bytes);

}  // namespace plimsoll::estimator::estimate
