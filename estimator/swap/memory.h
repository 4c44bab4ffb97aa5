// What a plan takes of each GPU's memory and of the host's: bounds, from what the layers took alone. Pure; any thread.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "estimator/swap/costs.h"
#include "estimator/swap/machine.h"
#include "estimator/swap/packed_volumes.h"
#include "estimator/swap/task_loads.h"

namespace plimsoll::estimator::inline swap {

// Of each of packed_tasks(), in their order.
std::vector<Bytes> memory_of_tasks(const SwapPlan& plan, SwapCosts& costs, SwapRuntime runtime);

// The most that any GPU holds; with prefetch, the weights of its next task beside each one.
Bytes device_memory(const SwapPlan& plan, SwapCosts& costs, SwapRuntime runtime);

// Of device_memory(), what the GPU that holds the most holds then.
TaskMemory fullest_task(const SwapPlan& plan, SwapCosts& costs, SwapRuntime runtime);

struct SwapHostMemory {
  Bytes model{};   // weights and buffers
  Bytes copies{};  // of them, in the type that moves, where the host keeps another one
  // All at once, as they left the GPUs; and in the host's type, where that is another one, those of the layer that is updated.
  Bytes gradients{};
  Bytes optimizer{};
  Bytes stash{};  // of the iteration, as hand_over
  Bytes hand_over{};
  Bytes total() const { return model + copies + gradients + optimizer + stash + hand_over; }
};
// Of a plan by which no layer stays on a GPU, without stashes and what is handed over; `model` is there under any plan.
SwapHostMemory host_memory_of_model(const SwapProfile& profile);
// A bound, of the tensors alone; processes take more. Layers that stay on a GPU have no copies, gradients and optimizer here.
SwapHostMemory host_memory(const SwapPlan& plan, const SwapProfile& profile);

}  // namespace plimsoll::estimator::swap
