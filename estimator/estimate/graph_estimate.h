// estimate_trace(): the peak of a trainer whose model is an exported graph; estimate_memory() calls it for
// request.graph. Pure; any thread.
#pragma once

#include "base/bytes.h"
#include "base/result.h"
#include "estimator/trace/trace.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline estimate {

// Errors: kUnsupported if the graph has no trace for the device or precision (with the command to export
// one), or has an operator without a rule; kInvalid for a batch size for which the graph is not valid.
Result<Estimate> estimate_trace(const EstimateRequest& request);

}  // namespace plimsoll::estimator::estimate
