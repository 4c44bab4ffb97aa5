// What the tasks of an iteration move between host and GPUs: by walking them one by one, and in closed form. Both give
// the same number of bytes. Harmony (HotOS'21), the table of its talk, with borders between layers counted exactly.
// Pure; any thread.
//
//   SwapVolumes volumes = walk_volumes(SwapMode::kVPP, layers, {.gpus = 4, .microbatches = 16});
#pragma once

#include <vector>

#include "base/budget.h"
#include "base/bytes.h"
#include "base/json/edit.h"
#include "base/result.h"
#include "estimator/swap/profile.h"
#include "estimator/swap/schedule.h"

namespace plimsoll::estimator::inline swap {

// Bytes in and out of all GPUs together; p2p: from GPU to GPU, counted once.
struct SwapVolumes {
  Bytes weights{};
  Bytes gradients{};
  Bytes state{};
  Bytes stash{};      // inputs that wait for backward
  Bytes hand_over{};  // what a task leaves for the next one, through the host
  Bytes p2p{};
  Bytes all_reduce_payload{};  // each replica's gradients once
  Bytes all_reduce_wire{};     // what a ring of the replicas sends

  Bytes swapped() const { return weights + gradients + state + stash + hand_over; }
  bool operator==(const SwapVolumes&) const = default;
};

// How per-GPU swapping (DP, PP) treats what the last task left on the GPU.
enum class SwapPaging : std::uint8_t {
  kStrict,     // a task's operands come, and go again, clean or not: the paper's swap model
  kOneLayer,   // the weights of one layer stay until another layer's are needed
  kDropClean,  // likewise, and weights that were not updated are dropped, not written back
};

struct SwapRules {
  SwapPaging paging = SwapPaging::kStrict;
  // Harmony's last layer has no forward task: its backward task, which would follow at once, runs it.
  bool fused_turn = false;
};

// Errors: kInvalid if the GPUs or microbatches are fewer than one, GPUs do not divide the microbatches of data
// parallelism, or a pipeline has more stages than layers.
Result<void> check_work(SwapMode mode, std::size_t layers, const SwapWork& work);

// What a task of the walk moves: without what follows all tasks, which is the reduction of gradients and, with kOneLayer and kDropClean,
// the weights that were left on GPUs.
struct SwapStep {
  SwapTask task;
  SwapVolumes moved;
};

// `layers`: of one microbatch, not empty; `work` as check_work() wants it. `steps`, if given, gets each task in its order.
SwapVolumes walk_volumes(SwapMode mode, const std::vector<SwapLayer>& layers, const SwapWork& work,
                         const SwapRules& rules = {}, Budget* budget = nullptr,
                         std::vector<SwapStep>* steps = nullptr);
SwapVolumes closed_volumes(SwapMode mode, const std::vector<SwapLayer>& layers, const SwapWork& work,
                           const SwapRules& rules = {});

// {weights, gradients, optimizerState, stash, handOver, p2p, allReducePayload, allReduceWire, swapped}
JsonObject to_json(const SwapVolumes& volumes);

}  // namespace plimsoll::estimator::swap
