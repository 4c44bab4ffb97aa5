#include "estimator/swap/packed_volumes.h"

#include <algorithm>
#include <string>

namespace plimsoll::estimator::inline swap {
namespace {

Result<void> check_packs(const char* name, const std::vector<std::size_t>& packs, std::size_t end) {
  const bool rising = std::adjacent_find(packs.begin(), packs.end(), std::greater_equal<>()) == packs.end();
  if (packs.empty() || packs.front() != 0 || !rising || packs.back() >= end) {
    return invalid(std::string("packs.") + name + " must be first layers, rising from 0 to at most " +
                   std::to_string(end - 1));
  }
  return {};
}

bool contains(const PackedTask& task, std::size_t layer) {
  return task.first <= layer && layer < task.end;
}

Result<void> check_residents(const SwapPlan& plan, std::size_t layers) {
  if (plan.mode != SwapMode::kVPP) {
    return plan.resident.empty() && !plan.mirrored
               ? Result<void>()
               : invalid(plan.mirrored ? "mirrored is for vPP: each GPU of vDP runs all tasks"
                                       : "resident must be empty: no layer of vDP stays on a GPU");
  }
  const std::vector<std::int32_t> homes = homes_of_layers(plan, layers);
  for (std::size_t i = 0; i < plan.resident.size(); ++i) {
    const std::size_t layer = plan.resident[i];
    if (layer >= layers || (i > 0 && layer <= plan.resident[i - 1])) {
      return invalid("resident must be layers, rising, from 0 to at most " + std::to_string(layers - 1));
    }
    if (homes[layer] < 0) {
      return invalid("layer " + std::to_string(layer) +
                     " cannot be resident: its forward and its backward task are on different GPUs");
    }
  }
  return {};
}

Result<void> check_stashes(const SwapPlan& plan, std::size_t layers) {
  if (plan.resident_stashes.empty()) {
    return {};
  }
  const std::vector<PackedTask> tasks = packed_tasks(plan, layers);
  const std::vector<StashSpan> spans = stash_spans(plan, tasks);
  auto at = spans.begin();
  for (const std::size_t head : plan.resident_stashes) {
    at = std::find_if(at, spans.end(), [&](const StashSpan& span) { return span.head == head; });
    if (at == spans.end()) {
      return invalid(
          "residentStashes must be first layers of backward packs, rising, without layer 0 and the last pack's");
    }
    if (tasks[at->made].gpu != tasks[at->taken].gpu) {
      return invalid("the stash of layer " + std::to_string(head) +
                     " cannot be resident: its forward and its backward task are on different GPUs");
    }
    ++at;
  }
  return {};
}

}  // namespace

Result<void> check_plan(const SwapPlan& plan, std::size_t layers) {
  if (!is_grouped(plan.mode)) {
    return invalid("mode must be vDP or vPP");
  }
  if (plan.gpus < 1 || plan.samples < 1 || layers < 1) {
    return invalid("gpus, samples and layers must be at least 1");
  }
  const std::int64_t copies = plan.mode == SwapMode::kVDP ? plan.gpus : 1;
  if (plan.samples % copies != 0) {
    return invalid("samples is " + std::to_string(plan.samples) + " and must be a multiple of the " +
                   std::to_string(copies) + " GPUs of vDP");
  }
  for (const std::int64_t microbatch : {plan.forward_microbatch, plan.backward_microbatch}) {
    if (microbatch < 1 || plan.samples / copies % microbatch != 0) {
      return invalid("a microbatch of " + std::to_string(microbatch) + " must divide the " +
                     std::to_string(plan.samples / copies) + " samples of a task");
    }
  }
  if (Result<void> checked = check_packs("backward", plan.backward_packs, layers); !checked) {
    return checked;
  }
  const std::size_t last = plan.backward_packs.back();
  if (last == 0 && !plan.forward_packs.empty()) {
    return invalid("packs.forward must be empty: the last backward pack has all layers");
  }
  if (last > 0) {
    if (Result<void> checked = check_packs("forward", plan.forward_packs, last); !checked) {
      return checked;
    }
  }
  if (Result<void> checked = check_residents(plan, layers); !checked) {
    return checked;
  }
  return check_stashes(plan, layers);
}

std::vector<PackedTask> packed_tasks(const SwapPlan& plan, std::size_t layers) {
  std::vector<PackedTask> tasks;
  for (std::size_t i = 0; i < plan.forward_packs.size(); ++i) {
    const bool is_last = i + 1 == plan.forward_packs.size();
    tasks.push_back({.forward = true,
                     .first = plan.forward_packs[i],
                     .end = is_last ? plan.backward_packs.back() : plan.forward_packs[i + 1]});
  }
  for (std::size_t i = plan.backward_packs.size(); i-- > 0;) {
    const bool is_last = i + 1 == plan.backward_packs.size();
    tasks.push_back({.forward = false,
                     .first = plan.backward_packs[i],
                     .end = is_last ? layers : plan.backward_packs[i + 1]});
  }
  const std::size_t gpus = static_cast<std::size_t>(plan.gpus);
  const std::size_t turn = plan.forward_packs.size();  // the first backward task
  for (std::size_t i = 0; i < tasks.size() && plan.mode == SwapMode::kVPP; ++i) {
    const bool returns = plan.mirrored && i > turn;
    tasks[i].gpu = static_cast<std::int32_t>((returns ? turn + (gpus - 1) * (i - turn) : i) % gpus);
  }
  return tasks;
}

std::vector<std::int32_t> homes_of_layers(const SwapPlan& plan, std::size_t layers) {
  std::vector<std::int32_t> homes(layers, -1);
  if (plan.mode != SwapMode::kVPP) {
    return homes;
  }
  std::vector<std::int32_t> forward(layers, -1);
  for (const PackedTask& task : packed_tasks(plan, layers)) {
    for (std::size_t layer = task.first; layer < task.end; ++layer) {
      if (task.forward) {
        forward[layer] = task.gpu;
      } else if (forward[layer] < 0 || forward[layer] == task.gpu) {
        homes[layer] = task.gpu;
      }
    }
  }
  return homes;
}

std::vector<std::size_t> stashes_of(const SwapPlan& plan) {
  std::vector<std::size_t> heads;
  for (const std::size_t head : plan.backward_packs) {
    if (head > 0 && head != plan.backward_packs.back()) {
      heads.push_back(head);
    }
  }
  return heads;
}

std::vector<StashSpan> stash_spans(const SwapPlan& plan, const std::vector<PackedTask>& tasks) {
  std::vector<StashSpan> spans;
  std::size_t made = 0;
  std::size_t taken = tasks.size();  // backward tasks come to the first layers last
  for (const std::size_t head : stashes_of(plan)) {
    while (!contains(tasks[made], head)) {
      ++made;
    }
    do {
      --taken;
    } while (tasks[taken].first != head);
    spans.push_back({.head = head, .made = made, .taken = taken});
  }
  return spans;
}

PackedVolumes packed_volumes(const SwapPlan& plan, const SwapProfile& profile, SwapRuntime runtime) {
  const std::vector<PackedTask> tasks = packed_tasks(plan, profile.weights.size());
  const std::int64_t copies = plan.mode == SwapMode::kVDP ? plan.gpus : 1;
  const bool by_p2p = plan.mode == SwapMode::kVPP && plan.gpus > 1 && plan.peer_to_peer;
  const bool published = runtime == SwapRuntime::kPublished;
  std::vector<const PackedTask*> before(static_cast<std::size_t>(plan.gpus), nullptr);
  std::vector<bool> is_resident(profile.layers());
  for (const std::size_t layer : plan.resident) {
    is_resident[layer] = true;
  }
  PackedVolumes volumes;
  for (const PackedTask& task : tasks) {
    const PackedTask*& last = before[static_cast<std::size_t>(task.gpu)];
    for (std::size_t layer = task.first; layer < task.end; ++layer) {
      if (is_resident[layer]) {
        continue;
      }
      const bool stays = last != nullptr && contains(*last, layer);
      const Bytes moved = profile.weights[layer] + profile.buffers[layer];
      (stays ? volumes.kept : volumes.weights_in) += moved * copies;
      if (!task.forward) {
        volumes.gradients_out += published ? moved : profile.weights[layer];
      }
    }
    last = &task;
    // The input of the first layer: from the task before, as a stash, and as the gradient that goes on from it.
    const Bytes input = profile.input[task.first] * plan.samples;
    const bool turns = !task.forward && task.end == profile.weights.size();
    const auto hand = [&](bool through_host) {
      (through_host ? volumes.hand_over : volumes.p2p) += input * (through_host ? 2 : 1);
    };
    if (task.first > 0 && (task.forward || turns)) {
      hand(!by_p2p || (turns && plan.forward_microbatch != plan.backward_microbatch));
    }
    if (!published && task.first == 0) {
      volumes.inputs += input;  // the first forward task, and the last backward task
    } else if (!task.forward && !turns && !std::ranges::binary_search(plan.resident_stashes, task.first)) {
      volumes.stash += input * 2;
    }
    if (task.first > 0 && !task.forward) {
      hand(!by_p2p);
    }
  }
  if (!published) {
    volumes.reduced = volumes.gradients_out * (copies - 1);
  }
  return volumes;
}

SwapVolumes volumes_of(const SwapPlan& plan, const PackedVolumes& packed) {
  const bool reduces = plan.mode == SwapMode::kVDP && plan.gpus > 1;
  return {.weights = packed.weights_in,
          .gradients = packed.gradients_out,
          .stash = packed.stash,
          .hand_over = packed.hand_over,
          .p2p = packed.p2p,
          .all_reduce_payload = reduces ? packed.gradients_out * plan.gpus : Bytes{},
          .all_reduce_wire = reduces ? packed.gradients_out * (plan.gpus - 1) : Bytes{}};
}

}  // namespace plimsoll::estimator::swap
