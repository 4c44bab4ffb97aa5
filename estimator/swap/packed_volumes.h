// What an iteration moves when packs of layers are tasks, and the host updates the layers: the schedule that Harmony's
// published code runs (github.com/msr-fiddle/harmony at 5fd838f, its vTasks), and `plimsoll.harmony`. Pure; any thread.
//
//   if (Result<void> checked = check_plan(plan, 52); !checked) return checked.error();
//   PackedVolumes volumes = packed_volumes(plan, profile, SwapRuntime::kPlimsoll);
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "estimator/swap/machine.h"
#include "estimator/swap/profile.h"
#include "estimator/swap/schedule.h"
#include "estimator/swap/volumes.h"

namespace plimsoll::estimator::inline swap {

// Packs are named by their first layers, rising from 0. The forward packs end where the last backward pack begins, which
// has no forward task; none if that is layer 0.
struct SwapPlan {
  SwapMode mode = SwapMode::kVPP;  // kVDP or kVPP
  std::int64_t gpus = 1;
  std::int64_t samples = 1;  // of an iteration, of all GPUs together
  std::int64_t forward_microbatch = 1;
  std::int64_t backward_microbatch = 1;
  std::vector<std::size_t> forward_packs;
  std::vector<std::size_t> backward_packs;
  bool prefetch = false;     // what a GPU's next task needs arrives while the one before it runs
  bool peer_to_peer = true;  // GPUs of vPP hand over to each other; else through the host
  // vPP: the backward tasks go round the GPUs in the reverse order, so that they come to the layers' GPUs of the forward pass again.
  bool mirrored = false;
  // vPP: layers, rising, that stay on their GPU from iteration to iteration with their gradients and the optimizer's state, and are
  // updated there. Each has its forward and its backward task on the same GPU.
  std::vector<std::size_t> resident = {};
  // First layers of backward packs, rising, of which the input stays on the GPU from the forward task that makes it to the backward
  // task, which are on the same GPU; the others' wait in host memory.
  std::vector<std::size_t> resident_stashes = {};
};

struct PackedTask {
  bool forward = false;
  std::size_t first = 0;
  std::size_t end = 0;
  std::int32_t gpu = 0;
};

struct PackedVolumes {
  Bytes weights_in{};     // with buffers
  Bytes kept{};           // of weights, which a GPU needs for two tasks in a row: not among weights_in
  Bytes gradients_out{};  // once, whatever the number of GPUs; kPublished: with buffers
  Bytes stash{};          // in and out; kPublished: with the samples, of the first backward pack
  Bytes hand_over{};      // in and out, through the host
  Bytes inputs{};         // the samples, not their targets; kPublished: not counted
  Bytes p2p{};
  Bytes reduced{};  // from GPU to GPU, of vDP's gradients; kPublished: not counted

  Bytes swapped() const { return weights_in + gradients_out + stash + hand_over + inputs; }
  Bytes between_gpus() const { return p2p + reduced; }
  bool operator==(const PackedVolumes&) const = default;
};

// Errors: kInvalid naming the member.
Result<void> check_plan(const SwapPlan& plan, std::size_t layers);

// The tasks in the order of their results: of vDP those of one GPU, which each runs.
std::vector<PackedTask> packed_tasks(const SwapPlan& plan, std::size_t layers);

// The GPU on which each layer may stay: that of its backward task, if its forward task, where it has one, is on the same. Else, and of
// vDP, -1.
std::vector<std::int32_t> homes_of_layers(const SwapPlan& plan, std::size_t layers);

// The first layers of the backward packs that have a stash under kPlimsoll: all but that of the samples, and the last one, whose backward
// task follows its forward pass at once.
std::vector<std::size_t> stashes_of(const SwapPlan& plan);

// A stash, from the forward task that makes it to the backward task that takes it, by their index.
struct StashSpan {
  std::size_t head = 0;  // first layer of the backward pack
  std::size_t made = 0;
  std::size_t taken = 0;
};
// Of stashes_of(), in that order. `tasks`: packed_tasks() of the plan.
std::vector<StashSpan> stash_spans(const SwapPlan& plan, const std::vector<PackedTask>& tasks);

// By walking the tasks. `plan` as check_plan() wants it. Of kPlimsoll what plimsoll.harmony counts, to the byte, but for targets
// and for the statistics of BatchNorm; of kPublished what Harmony's own code moves.
PackedVolumes packed_volumes(const SwapPlan& plan, const SwapProfile& profile, SwapRuntime runtime);

// The same by what is moved, as volumes.h has it. The optimizer's state stays on the host. `all_reduce_wire`: GPU 0 adds up the
// gradients of the others (vDP).
SwapVolumes volumes_of(const SwapPlan& plan, const PackedVolumes& packed);

}  // namespace plimsoll::estimator::swap
