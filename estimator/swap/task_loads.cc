#include "estimator/swap/task_loads.h"

#include <algorithm>

namespace plimsoll::estimator::inline swap {
namespace {

// Copies of a layer's parameters that its update makes on the GPU: its gradients in the parameters' type, and two of Adam's step
// (torch/optim/adam.py: the square root, and what it is divided by).
constexpr std::int64_t kUpdateCopies = 3;

Bytes state_of(const SwapProfile& profile, std::size_t layer) {
  return profile.state[layer] + (profile.moves_as_kept(layer) ? Bytes{} : profile.kept_on_host(layer));
}

bool contains(const PackedTask& task, std::size_t layer) {
  return task.first <= layer && layer < task.end;
}

}  // namespace

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

Bytes resident_bytes(const SwapProfile& profile, std::size_t layer) {
  return profile.moved(layer) + profile.weights[layer] + state_of(profile, layer);
}

TaskLoads::TaskLoads(const SwapPlan& plan, SwapCosts& costs, SwapRuntime runtime)
    : profile_(costs.profile()),
      samples_(plan.samples / (plan.mode == SwapMode::kVDP ? plan.gpus : 1)),
      homes_(homes_of_layers(plan, costs.layers())),
      tasks_on_(static_cast<std::size_t>(plan.gpus)),
      resident_(static_cast<std::size_t>(plan.gpus)),
      weights_arrive_(plan.prefetch && runtime == SwapRuntime::kPlimsoll) {
  const PassCosts* const forward = costs.forward(plan.forward_microbatch);
  const PassCosts* const backward = costs.backward(plan.backward_microbatch);
  std::vector<Bytes> next(static_cast<std::size_t>(plan.gpus));  // weights of each GPU's next task
  const std::vector<PackedTask> tasks = packed_tasks(plan, costs.layers());
  stashes_ = stash_spans(plan, tasks);
  tasks_.resize(tasks.size());
  for (std::size_t i = tasks.size(); i-- > 0;) {
    const PackedTask& task = tasks[i];
    const PassCosts* const pass = task.forward ? forward : backward;
    Bytes& ahead = next[static_cast<std::size_t>(task.gpu)];
    Task& load = tasks_[i];
    load.task = task;
    load.own = task_memory(plan, costs, pass, task, runtime);
    load.moved = costs.moved(task.first, task.end);
    load.gradients = task.forward ? Bytes{} : costs.gradients(task.first, task.end, runtime);
    const Bytes computing = pass == nullptr ? Bytes{} : pass->memory(task.first, task.end);
    load.updating = load.own - std::min(load.own, computing) + load.moved + load.gradients;
    load.ahead = weights_arrive_ ? ahead : Bytes{};
    ahead = load.moved;
    tasks_on_[static_cast<std::size_t>(task.gpu)].push_back(i);
  }
  for (std::vector<std::size_t>& of_gpu : tasks_on_) {
    std::reverse(of_gpu.begin(), of_gpu.end());
  }
  for (const std::size_t layer : plan.resident) {
    count(layer, homes_[layer], 1);
  }
  count_resident_stashes(plan.resident_stashes);
  for (std::int32_t gpu = 0; gpu < static_cast<std::int32_t>(resident_.size()); ++gpu) {
    resident_[static_cast<std::size_t>(gpu)].fullest = fullest_on(gpu);
  }
}

void TaskLoads::count_resident_stashes(const std::vector<std::size_t>& heads) {
  std::vector<Bytes> made(tasks_.size());
  std::vector<Bytes> taken(tasks_.size());
  for (const StashSpan& stash : stashes_) {
    if (std::ranges::binary_search(heads, stash.head)) {
      made[stash.made] += profile_.input[stash.head] * samples_;
      taken[stash.taken] += profile_.input[stash.head] * samples_;
    }
  }
  std::vector<Bytes> there(tasks_on_.size());  // on each GPU
  for (std::size_t i = 0; i < tasks_.size(); ++i) {
    Bytes& here = there[static_cast<std::size_t>(tasks_[i].task.gpu)];
    here += made[i];
    tasks_[i].stashes = here;
    here -= taken[i];
  }
}

Bytes TaskLoads::total(std::size_t task) const {
  const Task& load = tasks_[task];
  const Resident& resident = resident_[static_cast<std::size_t>(load.task.gpu)];
  const Bytes own =
      load.temporaries > Bytes{} ? std::max(load.own, load.updating + load.temporaries) : load.own;
  return own + load.ahead + load.stashes + (resident.moved - load.resident_moved) +
         (resident.gradients - load.resident_gradients) + resident.state;
}

TaskMemory TaskLoads::parts(std::size_t task) const {
  const Task& load = tasks_[task];
  const Resident& resident = resident_[static_cast<std::size_t>(load.task.gpu)];
  TaskMemory parts;
  parts.weights = load.moved + load.ahead + (resident.moved - load.resident_moved);
  parts.gradients = std::min(load.gradients, load.own - std::min(load.own, load.moved)) +
                    (resident.gradients - load.resident_gradients);
  parts.optimizer = resident.state;
  parts.activations = total(task) - parts.total();
  return parts;
}

Bytes TaskLoads::fullest_on(std::int32_t gpu) const {
  Bytes fullest;
  for (const std::size_t task : tasks_on(gpu)) {
    fullest = std::max(fullest, total(task));
  }
  return fullest;
}

bool TaskLoads::keep_within(std::size_t layer, Bytes capacity) {
  const std::int32_t gpu = homes_[layer];
  if (gpu < 0) {
    return false;
  }
  // A task has the layer's weights and gradients already if it is one of its own, and its weights again if they arrive for the next one.
  Resident& resident = resident_[static_cast<std::size_t>(gpu)];
  if (resident.fullest + state_of(profile_, layer) > capacity + profile_.moved(layer)) {
    return false;
  }
  std::vector<Bytes> temporaries;
  for (const std::size_t task : tasks_on(gpu)) {
    temporaries.push_back(tasks_[task].temporaries);
  }
  count(layer, gpu, 1);
  if (const Bytes fullest = fullest_on(gpu); fullest <= capacity) {
    resident.fullest = fullest;
    return true;
  }
  count(layer, gpu, -1);
  for (std::size_t i = 0; i < temporaries.size(); ++i) {
    tasks_[tasks_on(gpu)[i]].temporaries = temporaries[i];
  }
  return false;
}

bool TaskLoads::keep_stash_within(const StashSpan& stash, Bytes capacity) {
  if (tasks_[stash.made].task.gpu != tasks_[stash.taken].task.gpu) {
    return false;
  }
  if (count_stash(stash, 1) <= capacity) {
    return true;
  }
  count_stash(stash, -1);
  return false;
}

Bytes TaskLoads::count_stash(const StashSpan& stash, std::int64_t times) {
  Bytes fullest;
  for (std::size_t i = stash.made; i <= stash.taken; ++i) {
    if (tasks_[i].task.gpu == tasks_[stash.taken].task.gpu) {
      tasks_[i].stashes += profile_.input[stash.head] * samples_ * times;
      fullest = std::max(fullest, total(i));
    }
  }
  return fullest;
}

bool TaskLoads::arrives_ahead(std::size_t position, std::int32_t gpu, std::size_t layer) const {
  const std::vector<std::size_t>& mine = tasks_on(gpu);
  return weights_arrive_ && position + 1 < mine.size() && contains(tasks_[mine[position + 1]].task, layer);
}

void TaskLoads::count(std::size_t layer, std::int32_t gpu, std::int64_t times) {
  Resident& resident = resident_[static_cast<std::size_t>(gpu)];
  const Bytes moved = profile_.moved(layer) * times;
  const Bytes gradients = profile_.weights[layer] * times;
  resident.moved += moved;
  resident.gradients += gradients;
  resident.state += state_of(profile_, layer) * times;
  for (std::size_t i = 0; i < tasks_on(gpu).size(); ++i) {
    Task& load = tasks_[tasks_on(gpu)[i]];
    if (contains(load.task, layer)) {
      load.resident_moved += moved;
      if (!load.task.forward) {
        load.resident_gradients += gradients;
        load.temporaries = std::max(load.temporaries, profile_.kept_on_host(layer) * kUpdateCopies);
      }
    }
    if (arrives_ahead(i, gpu, layer)) {
      load.ahead -= moved;
    }
  }
}

}  // namespace plimsoll::estimator::swap
