// TaskLoads: what each task of a plan holds of its GPU, as layers are made to stay there one after the other. A layer that stays holds its
// weights, gradients and the optimizer's state at all times. The profile of `costs` must outlive it. Not thread-safe.
//
//   TaskLoads loads(plan, costs, SwapRuntime::kPlimsoll);
//   bool stays = loads.keep_within(7, 24_GiB);
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "estimator/swap/costs.h"
#include "estimator/swap/machine.h"
#include "estimator/swap/packed_volumes.h"

namespace plimsoll::estimator::inline swap {

// A run of layers as a task, on a GPU. kPlimsoll adds what the task is handed for all its samples, while the GPU finishes the
// task before (trainer/plimsoll/harmony/profile.py, device_bytes). Null `pass`: more than any memory.
Bytes task_memory(const SwapPlan& plan, const SwapCosts& costs, const PassCosts* pass, const PackedTask& task,
                  SwapRuntime runtime);

// What a GPU holds during a task.
struct TaskMemory {
  Bytes weights{};      // with buffers, those of the next task with prefetch, and those of layers that stay
  Bytes gradients{};    // and those of layers that stay
  Bytes optimizer{};    // of layers that stay
  Bytes activations{};  // all else
  Bytes total() const { return weights + gradients + optimizer + activations; }
};

// What a layer that stays holds of its GPU: weights, buffers, gradients, the optimizer's state, and the parameters in the host's type
// where another one moves.
Bytes resident_bytes(const SwapProfile& profile, std::size_t layer);

class TaskLoads {
 public:
  // With the layers of plan.resident and the stashes of plan.resident_stashes.
  TaskLoads(const SwapPlan& plan, SwapCosts& costs, SwapRuntime runtime);

  std::size_t tasks() const { return tasks_.size(); }  // in the order of packed_tasks()
  Bytes total(std::size_t task) const;
  TaskMemory parts(std::size_t task) const;
  // Lets a layer stay, if no task of its GPU then exceeds `capacity`. Else, or if its tasks are on different GPUs, changes nothing.
  bool keep_within(std::size_t layer, Bytes capacity);
  const std::vector<StashSpan>& stashes() const { return stashes_; }  // by their layers
  // The same for one of stashes(). Call it after keep_within().
  bool keep_stash_within(const StashSpan& stash, Bytes capacity);

 private:
  struct Task {
    PackedTask task;
    Bytes own{};        // as if no layer stayed
    Bytes updating{};   // at the end of a backward task, without the temporary tensors of its updates
    Bytes moved{};      // weights and buffers
    Bytes gradients{};  // of a backward task
    Bytes ahead{};      // weights of the GPU's next task, which arrive meanwhile
    Bytes stashes{};    // that stay
    // Of layers that stay, among those above.
    Bytes resident_moved{};
    Bytes resident_gradients{};
    Bytes temporaries{};  // of the largest update
  };
  // Of a GPU, of its layers that stay.
  struct Resident {
    Bytes moved{};
    Bytes gradients{};
    Bytes state{};
    Bytes fullest{};  // of its tasks, with these
  };

  Bytes fullest_on(std::int32_t gpu) const;
  // Adds what a layer that stays holds, or with times = -1 takes it away again but for the temporaries.
  void count(std::size_t layer, std::int32_t gpu, std::int64_t times);
  const std::vector<std::size_t>& tasks_on(std::int32_t gpu) const {
    return tasks_on_[static_cast<std::size_t>(gpu)];
  }
  bool arrives_ahead(std::size_t position, std::int32_t gpu, std::size_t layer) const;

  // Those of a plan, in one pass over the tasks.
  void count_resident_stashes(const std::vector<std::size_t>& heads);
  // Adds to the tasks during which it is there, or with times = -1 takes away, a stash that stays. Returns the fullest of them.
  Bytes count_stash(const StashSpan& stash, std::int64_t times);

  const SwapProfile& profile_;
  std::int64_t samples_;  // of a task
  std::vector<StashSpan> stashes_;
  std::vector<std::int32_t> homes_;
  std::vector<Task> tasks_;
  std::vector<std::vector<std::size_t>> tasks_on_;  // each GPU's, in their order
  std::vector<Resident> resident_;                  // by GPU
  bool weights_arrive_;
};

}  // namespace plimsoll::estimator::swap
