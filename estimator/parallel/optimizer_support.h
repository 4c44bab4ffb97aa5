// check_optimizer(): whether an optimizer works with a way to share the model among trainers. Pure.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "crds/training_job.h"

namespace plimsoll::estimator::inline parallel {

// `dtensors`: tensor parallelism makes DTensors of the parameters, as torch.distributed.tensor does.
// Errors: kUnsupported, saying what to choose instead.
Result<void> check_optimizer(crds::Optimizer optimizer, const crds::Parallelism& parallelism,
                             std::int64_t replicas, bool dtensors);

}  // namespace plimsoll::estimator::parallel
