#include "estimator/swap/memory.h"

#include <algorithm>
#include <vector>

namespace plimsoll::estimator::inline swap {

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
  SwapHostMemory memory;
  for (std::size_t i = 0; i < profile.layers(); ++i) {
    memory.model += profile.kept_on_host(i) + profile.buffers[i];
    memory.gradients += profile.kept_on_host(i);
    memory.optimizer += profile.state[i];
  }
  return memory;
}

SwapHostMemory host_memory(const SwapPlan& plan, const SwapProfile& profile) {
  SwapHostMemory memory = host_memory_of_model(profile);
  for (const std::size_t layer : plan.resident) {
    memory.gradients -= profile.kept_on_host(layer);
    memory.optimizer -= profile.state[layer];
  }
  for (const std::size_t head : plan.backward_packs) {
    if (head > 0 && head != plan.backward_packs.back()) {
      memory.stash += profile.input[head] * plan.samples;
    }
  }
  memory.hand_over = Bytes{packed_volumes(plan, profile, SwapRuntime::kPlimsoll).hand_over.count / 2};
  return memory;
}

}  // namespace plimsoll::estimator::swap
