#include "estimator/provisioner/size_exclusion.h"

#include <algorithm>
#include <cctype>

#include "estimator/catalog/gpu_catalog.h"

namespace plimsoll::estimator::inline provisioner {

bool same_name(const std::string& a, const std::string& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

const AvailableGpu* find_gpu(const std::vector<AvailableGpu>& gpus, const std::string& name) {
  const auto found = std::find_if(gpus.begin(), gpus.end(),
                                  [&](const AvailableGpu& gpu) { return same_name(gpu.model.name, name); });
  return found == gpus.end() ? nullptr : &*found;
}

std::optional<Bytes> capacity_of(const crds::Attempt& attempt, const std::vector<AvailableGpu>& gpus) {
  if (const AvailableGpu* gpu = find_gpu(gpus, attempt.gpu_model)) {
    return gpu->model.memory;
  }
  if (attempt.out_of_memory.capacity) {
    return attempt.out_of_memory.capacity;
  }
  static const GpuCatalog catalog = GpuCatalog::built_in();
  const GpuModel* known = catalog.find(attempt.gpu_model);
  return known == nullptr ? std::optional<Bytes>() : known->memory;
}

Bytes needed_at_least(const crds::Attempt& attempt, Bytes capacity, const crds::FailurePolicy& policy) {
  const Bytes observed = attempt.observed_peak.value_or(Bytes{});
  const crds::OutOfMemoryFigures& reported = attempt.out_of_memory;
  if (reported.needed) {
    // Memory that PyTorch did not see (the driver's, a limit of the process) is missing in the next attempt too.
    const Bytes unseen = std::max(Bytes{}, capacity - reported.capacity.value_or(capacity));
    return std::max({*reported.needed + unseen, observed, capacity + Bytes{1}});
  }
  const Bytes present = std::max({capacity, observed, attempt.estimated.value_or(Bytes{})});
  return std::max(Bytes::ceil(static_cast<double>(present.count) * policy.oom_bump_up_ratio),
                  present + policy.oom_min_bump_up.value_or(crds::kOomMinBumpUp));
}

std::vector<FailedSize> failed_sizes(const crds::TrainingJob& job, const std::vector<crds::Attempt>& attempts,
                                     const std::vector<AvailableGpu>& gpus) {
  std::vector<FailedSize> failed;
  for (const crds::Attempt& attempt : attempts) {
    const bool out_of_memory =
        attempt.outcome == crds::Outcome::kCudaOutOfMemory && !attempt.out_of_memory.others_filled_card();
    if (!out_of_memory && attempt.outcome != crds::Outcome::kShardingFailure) {
      continue;
    }
    std::optional<Bytes> capacity = capacity_of(attempt, gpus);
    if (!capacity) {
      // An unknown GPU model may have been the largest.
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
         .needed = out_of_memory ? needed_at_least(attempt, *capacity, job.spec.failure_policy) : Bytes{},
         .in_startup = out_of_memory && attempt.ended_in_startup,
         .swap_plan = attempt.swap_plan,
         .estimated = attempt.estimated.value_or(Bytes{}),
         .accumulation = attempt.batch_size > 0 ? attempt.accumulation : 0});
  }
  return failed;
}

std::int64_t trainers_ruled_out(const std::vector<FailedSize>& failed, const AvailableGpu& gpu) {
  std::int64_t trainers = 0;
  for (const FailedSize& size : failed) {
    if (size.swap_plan) {
      continue;  // its GPUs never held the whole job
    }
    if (same_name(size.gpu_model, gpu.model.name) || gpu.model.memory <= size.capacity) {
      trainers = std::max(trainers, size.trainers);
    }
  }
  return trainers;
}

}  // namespace plimsoll::estimator::provisioner
