#include "estimator/swap/memory.h"

#include <algorithm>
#include <vector>

namespace plimsoll::estimator::inline swap {
namespace {

// `resident`: layers that stay on a GPU, rising.
SwapHostMemory host_memory_beside(const SwapProfile& profile, const std::vector<std::size_t>& resident) {
  SwapHostMemory memory;
  Bytes updated{};  // the largest layer's gradients in the host's type
  for (std::size_t i = 0; i < profile.layers(); ++i) {
    const bool converts = !profile.moves_as_kept(i);
    memory.model += profile.kept_on_host(i) + profile.buffers[i] * (converts ? 2 : 1);  // fp32 for 16 bits
    if (std::ranges::binary_search(resident, i)) {
      continue;
    }
    memory.copies += converts ? profile.moved(i) : Bytes{};
    memory.gradients += profile.weights[i];
    memory.optimizer += profile.state[i];
    updated = std::max(updated, converts ? profile.kept_on_host(i) : Bytes{});
  }
  memory.gradients += updated;
  return memory;
}

}  // namespace

std::vector<Bytes> memory_of_tasks(const SwapPlan& plan, SwapCosts& costs, SwapRuntime runtime) {
  const TaskLoads loads(plan, costs, runtime);
  std::vector<Bytes> memory;
  for (std::size_t task = 0; task < loads.tasks(); ++task) {
    memory.push_back(loads.total(task));
  }
  return memory;
}

TaskMemory fullest_task(const SwapPlan& plan, SwapCosts& costs, SwapRuntime runtime) {
  const TaskLoads loads(plan, costs, runtime);
  std::size_t fullest = 0;
  for (std::size_t task = 1; task < loads.tasks(); ++task) {
    fullest = loads.total(task) > loads.total(fullest) ? task : fullest;
  }
  return loads.parts(fullest);
}

Bytes device_memory(const SwapPlan& plan, SwapCosts& costs, SwapRuntime runtime) {
  return fullest_task(plan, costs, runtime).total();
}

SwapHostMemory host_memory_of_model(const SwapProfile& profile) {
  return host_memory_beside(profile, {});
}

SwapHostMemory host_memory(const SwapPlan& plan, const SwapProfile& profile) {
  SwapHostMemory memory = host_memory_beside(profile, plan.resident);
  for (const std::size_t head : stashes_of(plan)) {
    if (!std::ranges::binary_search(plan.resident_stashes, head)) {
      memory.stash += profile.input[head] * plan.samples;
    }
  }
  memory.hand_over = Bytes{packed_volumes(plan, profile, SwapRuntime::kPlimsoll).hand_over.count / 2};
  return memory;
}

}  // namespace plimsoll::estimator::swap
