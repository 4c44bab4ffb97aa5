// estimate_trace(): the peak of a trainer whose model is an exported graph; estimate_memory() comes here for
// request.graph. Pure; any thread.
#pragma once

#include "base/bytes.h"
#include "base/result.h"
#include "estimator/trace/trace.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline estimate {

// Errors: kUnsupported when the graph has no trace for the device or precision (saying how to export one), or
// an operator without a rule; kInvalid for a batch at which the graph does not hold.
Result<Estimate> estimate_trace(const EstimateRequest& request);

}  // namespace plimsoll::estimator::estimate
