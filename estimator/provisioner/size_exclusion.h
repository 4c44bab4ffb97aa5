// What the attempts of a job tell the provisioner: the sizes on which it has failed for want of memory.
//
//   request.failed = failed_sizes(job, status.attempts, gpus);
//
// Pure; any thread.
#pragma once

#include <optional>
#include <vector>

#include "base/bytes.h"
#include "crds/training_job.h"
#include "crds/training_job_status.h"
#include "estimator/catalog/inventory.h"
#include "estimator/provisioner/provisioner.h"

namespace plimsoll::estimator::inline provisioner {

std::vector<FailedSize> failed_sizes(const crds::TrainingJob& job, const std::vector<crds::Attempt>& attempts,
                                     const std::vector<AvailableGpu>& gpus);

// What one trainer of an attempt that ran out of GPU memory needed, at least.
Bytes needed_at_least(const crds::Attempt& attempt, Bytes capacity, const crds::FailurePolicy& policy);

// The memory of a card of the attempt's GPU model; nothing where neither cluster, attempt nor catalogue
// knows.
std::optional<Bytes> capacity_of(const crds::Attempt& attempt, const std::vector<AvailableGpu>& gpus);

}  // namespace plimsoll::estimator::inline provisioner
