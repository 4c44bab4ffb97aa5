// swap_tasks(): the tasks of one iteration in the order in which each GPU runs them, for the four ways to train through
// host memory that the paper compares. Layers are tasks. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/budget.h"

namespace plimsoll::estimator::inline swap {

enum class SwapMode : std::uint8_t {
  kDP,   // data parallel; each GPU swaps for itself
  kPP,   // pipeline parallel; each GPU swaps for itself
  kVDP,  // Harmony's data parallel: all microbatches of a layer at once, updates at once
  kVPP,  // Harmony's pipeline parallel: likewise, and the layers go round the GPUs
};
const char* name_of(SwapMode mode);  // "DP", "PP", "vDP", "vPP"
constexpr bool is_grouped(SwapMode mode) {
  return mode == SwapMode::kVDP || mode == SwapMode::kVPP;
}

struct SwapTask {
  enum class Kind : std::uint8_t { kForward, kBackward, kUpdate };
  Kind kind = Kind::kForward;
  std::int32_t gpu = 0;
  std::size_t layer = 0;
  std::int64_t microbatches = 1;  // that it runs
};
std::string to_string(const SwapTask& task);  // "GPU 0, forward of layer 2"

// An iteration on `microbatches` in total, which `gpus` divides for data parallelism.
struct SwapWork {
  std::int64_t gpus = 1;
  std::int64_t microbatches = 1;
};

// The stage of a pipeline that owns a layer: equal runs of layers.
std::int32_t stage_of(std::size_t layer, std::size_t layers, std::int64_t stages);

std::vector<SwapTask> swap_tasks(SwapMode mode, std::size_t layers, const SwapWork& work,
                                 Budget* budget = nullptr);

}  // namespace plimsoll::estimator::swap
