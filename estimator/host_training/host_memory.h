// container_memory(): what the container of a job asks of a node's memory, where training keeps tensors in host memory. Pure; any
// thread.
//
//   container_memory(plan.host.total(), 1);   // one process
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace plimsoll::estimator::inline host_training {

Bytes container_memory(Bytes tensors, std::int64_t processes);

// The part of a container's memory that its tensors can have; negative where there is none.
Bytes tensors_within(Bytes container, std::int64_t processes);

}  // namespace plimsoll::estimator::host_training
