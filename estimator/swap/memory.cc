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

namespace {

// From the last task to the first, each with what it takes itself, its weights, and those of the GPU's next task that arrive
// meanwhile: visit(index, task, own, moved, ahead).
template <class Visit>
void visit_tasks(const SwapPlan& plan, SwapCosts& costs, SwapRuntime runtime, Visit visit) {
  const PassCosts* const forward = costs.forward(plan.forward_microbatch);
  const PassCosts* const backward = costs.backward(plan.backward_microbatch);
  const bool weights_arrive = plan.prefetch && runtime == SwapRuntime::kPlimsoll;
  std::vector<Bytes> next(static_cast<std::size_t>(plan.gpus));  // weights of each GPU's next task
  const std::vector<PackedTask> tasks = packed_tasks(plan, costs.layers());
  for (std::size_t i = tasks.size(); i-- > 0;) {
    const PackedTask& task = tasks[i];
    Bytes& ahead = next[static_cast<std::size_t>(task.gpu)];
    const Bytes own = task_memory(plan, costs, task.forward ? forward : backward, task, runtime);
    const Bytes moved = costs.moved(task.first, task.end);
    visit(i, task, own, moved, weights_arrive ? ahead : Bytes{});
    ahead = moved;
  }
}

}  // namespace

std::vector<Bytes> memory_of_tasks(const SwapPlan& plan, SwapCosts& costs, SwapRuntime runtime) {
  std::vector<Bytes> memory;
  visit_tasks(plan, costs, runtime, [&](std::size_t index, const PackedTask&, Bytes own, Bytes, Bytes ahead) {
    memory.resize(std::max(memory.size(), index + 1));
    memory[index] = own + ahead;
  });
  return memory;
}

TaskMemory fullest_task(const SwapPlan& plan, SwapCosts& costs, SwapRuntime runtime) {
  TaskMemory fullest;
  visit_tasks(plan, costs, runtime,
              [&](std::size_t, const PackedTask& task, Bytes own, Bytes moved, Bytes ahead) {
                const Bytes total = own + ahead;
                if (total > fullest.total()) {
                  fullest.weights = moved + ahead;
                  fullest.gradients = task.forward ? Bytes{} : std::min(moved, own - std::min(own, moved));
                  fullest.activations = total - fullest.weights - fullest.gradients;
                }
              });
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
