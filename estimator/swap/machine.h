// SwapMachine: the node on which a plan is simulated, and whose code executes it. Values; any thread.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace plimsoll::estimator::inline swap {

enum class SwapRuntime : std::uint8_t {
  // plimsoll.harmony: one process for all GPUs. What it keeps in host memory is there for all of them; layers that a GPU needs
  // for two tasks in a row stay on it; one thread updates the layers.
  kPlimsoll,
  // msr-fiddle/harmony at 5fd838f, as its simulator has it: one process a GPU, which copy stashes from one to the other, bring all
  // layers of each task, and update the layers side by side.
  kPublished,
};

// What Harmony does, and swapping for each GPU alone does not; and `stay`, which Harmony does not. Each can be left out, to see what it is
// worth.
struct SwapPrinciples {
  bool group =
      true;  // a task takes all microbatches while its weights are there; else they come for each one
  bool just_in_time =
      true;  // layers are updated once their gradients are there; else at the end of the iteration
  bool peer_to_peer = true;  // GPUs hand over to each other; else through the host
  bool balance = true;       // packs are cut so that tasks take equally long; else each is filled up
  // Layers for which there is memory stay on their GPU, and are updated there; and so do stashes; kPlimsoll.
  bool stay = true;
};

// Bandwidths in bytes a second.
struct SwapMachine {
  SwapRuntime runtime = SwapRuntime::kPlimsoll;
  SwapPrinciples principles = {};
  double host_bandwidth = 0;       // of a root complex, each way
  std::int64_t gpus_per_root = 0;  // that share it; 0: all
  // Whether each GPU has an equal share of its root's bandwidth at all times. Else those that transfer have it.
  bool fixed_shares = false;
  double p2p_bandwidth = 0;        // from GPU to GPU, each way; 0: through the host
  double host_copy_bandwidth = 0;  // kPublished: within host memory, all GPUs together
  double task_seconds = 0;         // to free what a task held
  double gpu_memory_bandwidth =
      0;  // of a GPU, for the updates of layers that stay; 0: not known, and none stays
  // Host memory that may be pinned. Weights beyond it move with `pageable_bandwidth`, if that is less.
  Bytes pinned = Bytes::max();
  double pageable_bandwidth = 0;
};

inline bool stashes_may_stay(const SwapMachine& machine) {
  return machine.principles.stay && machine.runtime == SwapRuntime::kPlimsoll;
}
inline bool layers_may_stay(const SwapMachine& machine) {
  return stashes_may_stay(machine) && machine.gpu_memory_bandwidth > 0;
}

inline bool hands_over_by_p2p(const SwapMachine& machine) {
  return machine.p2p_bandwidth > 0 && machine.principles.peer_to_peer;
}

// Two to eight GTX 1080 Ti behind one root complex, with the constants of the published scheduler (sched_args.py): PCIe 3.0 x16 as measured,
// shared evenly, 40 ms a task.
inline SwapMachine published_machine() {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  return {.runtime = SwapRuntime::kPublished,
          .host_bandwidth = 11.5 * kGiB,
          .fixed_shares = true,
          .p2p_bandwidth = 8.2 * kGiB,
          .host_copy_bandwidth = 16 * kGiB,
          .task_seconds = 0.040};
}

}  // namespace plimsoll::estimator::swap
