// The rule that a size on which a job has failed is never used again. A failed size rules out every size that
// has neither more trainers nor larger GPUs; the provisioner and remediation both apply the rule through
// trainers_ruled_out().
//
//   request.failed = failed_sizes(job, status.attempts, gpus);
//
// Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "crds/training_job.h"
#include "crds/training_job_status.h"
#include "estimator/catalog/inventory.h"

namespace plimsoll::estimator::inline provisioner {

// A size on which the job ran out of memory or could not be sharded.
struct FailedSize {
  std::string gpu_model;
  std::int64_t trainers = 0;
  std::int64_t per_node = 0;
  Bytes capacity;                 // of one GPU
  Bytes needed;                   // by one trainer, at least; 0: not known
  bool in_startup = false;        // before the first forward pass, whatever the number of trainers
  bool swap_plan = false;         // it trained through host memory: other sizes are not ruled out by that
  Bytes estimated{};              // upper bound of one trainer when it began; 0: not known
  std::int64_t accumulation = 0;  // parts that a share of a global batch was taken in; 0: not known
};

// The failed sizes among a job's attempts. A card that others filled is no fault of the size.
std::vector<FailedSize> failed_sizes(const crds::TrainingJob& job, const std::vector<crds::Attempt>& attempts,
                                     const std::vector<AvailableGpu>& gpus);

// The largest number of trainers that the failed sizes exclude on this GPU model; no smaller number is tried
// again either. 0: any number may be tried.
std::int64_t trainers_ruled_out(const std::vector<FailedSize>& failed, const AvailableGpu& gpu);

// The least memory that one trainer of an attempt that ran out of GPU memory needed.
Bytes needed_at_least(const crds::Attempt& attempt, Bytes capacity, const crds::FailurePolicy& policy);

bool same_name(const std::string& a, const std::string& b);  // of GPU models, ignoring case
const AvailableGpu* find_gpu(const std::vector<AvailableGpu>& gpus, const std::string& name);  // null: none

// The memory of one GPU of the attempt's model, from the cluster, the attempt or the catalogue; nothing if none
// of them knows it.
std::optional<Bytes> capacity_of(const crds::Attempt& attempt, const std::vector<AvailableGpu>& gpus);

}  // namespace plimsoll::estimator::provisioner
