#include "estimator/swap/memory.h"

#include <algorithm>
#include <vector>

namespace plimsoll::estimator::inline swap {

Bytes task_memory(const SwapPlan& plan, const SwapCosts& costs, const PassCosts* pass, const PackedTask& task,
                  SwapRuntime runtime) {
  if (pass == nullptr) {
    return Bytes::max();
  }
  Bytes bytes = pass->memory(task.first, task.end);
  if (runtime == SwapRuntime::kPlimsoll && plan.mode == SwapMode::kVPP && plan.gpus > 1 &&
      plan.peer_to_peer) {
    const bool takes_input = task.forward || task.end == costs.layers();
    const std::size_t border = takes_input ? task.first : task.end;
    if (border > 0) {
      bytes = bytes + costs.profile().input[border] * plan.samples;
    }
  }
  return bytes;
}

TaskMemory fullest_task(const SwapPlan& plan, SwapCosts& costs, SwapRuntime runtime) {
  const PassCosts* const forward = costs.forward(plan.forward_microbatch);
  const PassCosts* const backward = costs.backward(plan.backward_microbatch);
  const bool weights_arrive = plan.prefetch && runtime == SwapRuntime::kPlimsoll;
  std::vector<Bytes> next(static_cast<std::size_t>(plan.gpus));  // weights of each GPU's next task
  TaskMemory fullest;
  const std::vector<PackedTask> tasks = packed_tasks(plan, costs.layers());
  for (auto task = tasks.rbegin(); task != tasks.rend(); ++task) {
    Bytes& ahead = next[static_cast<std::size_t>(task->gpu)];
    const Bytes own = task_memory(plan, costs, task->forward ? forward : backward, *task, runtime);
    const Bytes moved = costs.moved(task->first, task->end);
    const Bytes total = own + (weights_arrive ? ahead : Bytes{});
    if (total > fullest.total()) {
      fullest.weights = moved + (weights_arrive ? ahead : Bytes{});
      fullest.gradients = task->forward ? Bytes{} : std::min(moved, own - std::min(own, moved));
      fullest.activations = total - fullest.weights - fullest.gradients;
    }
    ahead = moved;
  }
  return fullest;
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
  for (const std::size_t head : plan.backward_packs) {
    if (head > 0 && head != plan.backward_packs.back()) {
      memory.stash += profile.input[head] * plan.samples;
    }
  }
  memory.hand_over = Bytes{packed_volumes(plan, profile, SwapRuntime::kPlimsoll).hand_over.count / 2};
  return memory;
}

}  // namespace plimsoll::estimator::swap
