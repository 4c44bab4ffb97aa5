#include "estimator/provisioner/size_exclusion.h"

#include <strings.h>

#include <algorithm>

#include "estimator/catalog/gpu_catalog.h"

namespace plimsoll::estimator::inline provisioner {
namespace {

const AvailableGpu* find(const std::vector<AvailableGpu>& gpus, const std::string& name) {
  const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const AvailableGpu& gpu) {
    return gpu.model.name.size() == name.size() &&
           strncasecmp(gpu.model.name.data(), name.data(), name.size()) == 0;
  });
  return found == gpus.end() ? nullptr : &*found;
}

}  // namespace

std::optional<Bytes> capacity_of(const crds::Attempt& attempt, const std::vector<AvailableGpu>& gpus) {
  if (const AvailableGpu* gpu = find(gpus, attempt.gpu_model)) {
    return gpu->model.memory;
  }
  if (attempt.capacity) {
    return attempt.capacity;
  }
  static const GpuCatalog catalog = GpuCatalog::built_in();
  const GpuModel* known = catalog.find(attempt.gpu_model);
  return known == nullptr ? std::optional<Bytes>() : known->memory;
}

Bytes needed_at_least(const crds::Attempt& attempt, Bytes capacity, const crds::FailurePolicy& policy) {
  const Bytes observed = attempt.observed_peak.value_or(Bytes{});
  if (attempt.needed) {
    // What PyTorch did not see of the card (the driver's share, a limit set on the process) is not there for
    // the next attempt either.
    const Bytes unseen = std::max(Bytes{}, capacity - attempt.capacity.value_or(capacity));
    return std::max({*attempt.needed + unseen, observed, capacity + Bytes{1}});
  }
  const Bytes there = std::max({capacity, observed, attempt.estimated.value_or(Bytes{})});
  return std::max(Bytes::ceil(static_cast<double>(there.count) * policy.oom_bump_up_ratio),
                  there + policy.oom_min_bump_up.value_or(crds::kOomMinBumpUp));
}

std::vector<FailedSize> failed_sizes(const crds::TrainingJob& job, const std::vector<crds::Attempt>& attempts,
                                     const std::vector<AvailableGpu>& gpus) {
  std::vector<FailedSize> failed;
  for (const crds::Attempt& attempt : attempts) {
    const bool out_of_memory = attempt.outcome == crds::Outcome::kCudaOutOfMemory;
    if (!out_of_memory && attempt.outcome != crds::Outcome::kShardingFailure) {
      continue;
    }
    std::optional<Bytes> capacity = capacity_of(attempt, gpus);
    if (!capacity) {
      // On some GPU, it is not known which: any may have been it.
      capacity = Bytes{};
      for (const AvailableGpu& gpu : gpus) {
        capacity = std::max(*capacity, gpu.model.memory);
      }
    }
    failed.push_back(
        {.gpu_model = attempt.gpu_model,
         .trainers = attempt.trainers > 0 ? attempt.trainers : job.spec.trainers.replicas,
         .per_node = attempt.per_node,
         .capacity = *capacity,
         .needed = out_of_memory ? needed_at_least(attempt, *capacity, job.spec.failure_policy) : Bytes{}});
  }
  return failed;
}

}  // namespace plimsoll::estimator::inline provisioner
