// largest_batch(): the largest batch that fits. Pure; any thread.
#pragma once

#include "base/bytes.h"
#include "base/result.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline estimate {

// The largest batch whose upper bound is at most `capacity`; 0 if not even one sample fits. Monotonic in the
// capacity. Errors: as estimate_memory.
Result<std::int64_t> largest_batch(const EstimateRequest& request, Bytes capacity);

}  // namespace plimsoll::estimator::estimate
