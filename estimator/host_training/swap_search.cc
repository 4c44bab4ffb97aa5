#include "estimator/host_training/swap_search.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "crds/shared_memory.h"
#include "estimator/estimate/margins.h"
#include "estimator/fixed_costs/fixed_costs.h"
#include "estimator/host_training/host_memory.h"
#include "estimator/host_training/swap_machine.h"
#include "estimator/layer_costs/layer_profile.h"
#include "estimator/swap/bound.h"
#include "estimator/swap/costs.h"
#include "estimator/swap/memory.h"

namespace plimsoll::estimator::inline host_training {
namespace {

// Sizes of microbatches that a model is profiled with: divisors of the batch, so that a task takes whole ones.
constexpr std::int64_t kMostSamplesOfAMicrobatch = 64;
constexpr std::size_t kMostMicrobatches = 8;

// Batches that the worker processes of torch.utils.data.DataLoader have in /dev/shm at once: two of a worker (prefetch_factor), for
// two workers.
constexpr std::int64_t kBatchesInSharedMemory = 4;

std::vector<std::int64_t> microbatches_of(std::int64_t samples) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = std::min(samples, kMostSamplesOfAMicrobatch);
       size >= 1 && sizes.size() < kMostMicrobatches; --size) {
    if (samples % size == 0) {
      sizes.push_back(size);
    }
  }
  sizes.back() = 1;  // what fits where nothing larger does
  std::reverse(sizes.begin(), sizes.end());
  return sizes;
}

Result<SwapProfile> profile_of(const SwapSearch& search) {
  crds::TrainingSpec training = *search.job.training;
  training.batch_size_per_trainer = 1;
  training.global_batch_size = 0;
  training.gradient_accumulation = 1;
  LayerProfileRequest wanted{.job = search.job, .microbatches = microbatches_of(search.samples)};
  wanted.job.training = &training;
  return layer_profile(wanted);
}

// What the allocator may take beyond the plan's tensors: the margins of an estimate (estimate/margins.h).
Bytes margin_of(Bytes planned) {
  return Bytes::ceil(static_cast<double>(planned.count) * kSimulationMargin) + kSegmentOfEachPool;
}

// Of the plan's tensors, so that with their margin they are within what the card leaves.
Bytes capacity_within(Bytes left) {
  const Bytes room = left - kSegmentOfEachPool - 1_B;
  return Bytes{static_cast<std::int64_t>(static_cast<double>(room.count) / (1 + kSimulationMargin))};
}

Estimate estimate_of(const SwapPlan& plan, SwapCosts& costs, const FixedCosts& fixed) {
  const TaskMemory parts = fullest_task(plan, costs, SwapRuntime::kPlimsoll);
  Estimate estimate;
  Breakdown& breakdown = estimate.breakdown;
  breakdown.parameters = parts.weights;
  breakdown.gradients = parts.gradients;
  breakdown.optimizer_state = parts.optimizer;
  breakdown.activations = parts.activations;
  breakdown.workspace = fixed.forward_workspace + fixed.backward_workspace;
  breakdown.allocator_slack = margin_of(parts.total());
  breakdown.cuda_context = fixed.cuda_context;
  estimate.peak.allocated = parts.total() + breakdown.workspace;
  estimate.peak.reserved = estimate.peak.allocated + breakdown.allocator_slack;
  estimate.peak.upper_bound = breakdown.total();
  estimate.peak_phase = "Backward";
  return estimate;
}

// What the container asks for. Errors: kUnfittable where no node is known to have it.
Result<void> hold_in_host(const SwapSearch& search, const SwapProfile& profile, SwapTraining& training) {
  const Bytes batches = profile.input.front() * search.samples * kBatchesInSharedMemory;
  training.shared_memory = batches > crds::kDefaultSharedMemory ? batches : Bytes{};
  training.host_memory = container_memory(training.planned.host.total(), 1) + training.shared_memory;
  if (search.node_memory > Bytes{} && training.host_memory > search.node_memory) {
    return Error(ErrorCode::kUnfittable,
                 "a swap plan keeps the model, its gradients and its optimizer's state in " +
                     to_string(training.host_memory) + " of host memory, and a node has " +
                     to_string(search.node_memory));
  }
  return {};
}

}  // namespace

Result<SwapFound> search_swap_plan(const SwapSearch& search) {
  if (search.samples < 1 || search.samples > kMaxSwapSamples) {
    return Error(ErrorCode::kUnsupported,
                 "a swap plan needs a batch of 1 to " + std::to_string(kMaxSwapSamples) +
                     " samples, and the requested trainers take " + std::to_string(search.samples));
  }
  const Result<SwapProfile> profile = profile_of(search);
  if (!profile) {
    return profile.error();
  }
  SwapRequest request;
  request.profile = &*profile;
  request.gpus = search.gpus;
  request.samples = search.samples;
  request.capacity = capacity_within(swap_capacity(search.job, search.usable));
  request.machine = swap_machine_of(*search.job.gpu, search.job.learned);
  request.machine.principles.just_in_time =
      search.job.training->gradient_clipping != crds::GradientClipping::kNorm;
  request.seconds_to_beat = search.seconds_to_beat;
  request.budget = search.job.budget;
  Result<PlannedSwap> planned = plan_swap(request);
  if (!planned) {
    return planned.error();
  }
  SwapFound found;
  found.training.layers = profile->layers();
  found.training.capacity = request.capacity;
  found.training.planned = *std::move(planned);
  if (const Result<void> held = hold_in_host(search, *profile, found.training); !held) {
    return held.error();
  }
  SwapCosts costs(*profile);
  found.training.resident_seconds = resident_seconds(found.training.planned.plan, costs);
  found.estimate = estimate_of(found.training.planned.plan, costs, fixed_costs_of(search.job));
  return found;
}

}  // namespace plimsoll::estimator::host_training
