// largest_batch(): the question the other way round. Pure; any thread.
#pragma once

#include "base/bytes.h"
#include "base/result.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline estimate {

// The largest batch whose upper bound is at most `capacity`; 0 when not even one sample fits. Grows with the
// capacity. Errors: as estimate_memory.
Result<std::int64_t> largest_batch(const EstimateRequest& request, Bytes capacity);

}  // namespace plimsoll::estimator::estimate
