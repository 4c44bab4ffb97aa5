#include "estimator/swap/schedule.h"

namespace plimsoll::estimator::inline swap {
namespace {

using Kind = SwapTask::Kind;

class Tasks {
 public:
  Tasks(SwapMode mode, std::size_t layers, const SwapWork& work, Budget* budget)
      : mode_(mode), layers_(layers), work_(work), budget_(budget) {}

  std::vector<SwapTask> all() && {
    const bool replicated = mode_ == SwapMode::kDP || mode_ == SwapMode::kVDP;
    const std::int64_t replicas = replicated ? work_.gpus : 1;
    const std::int64_t each = work_.microbatches / replicas;
    for (std::int64_t replica = 0; replica < replicas; ++replica) {
      replica_ = static_cast<std::int32_t>(replica);
      if (is_grouped(mode_)) {
        grouped(each);
      } else {
        one_by_one(each);
      }
    }
    return std::move(tasks_);
  }

 private:
  void one_by_one(std::int64_t microbatches) {
    for (std::int64_t i = 0; i < microbatches; ++i) {
      for (std::size_t layer = 0; layer < layers_; ++layer) {
        add(Kind::kForward, layer, 1);
      }
      for (std::size_t layer = layers_; layer-- > 0;) {
        add(Kind::kBackward, layer, 1);
      }
    }
    for (std::size_t layer = 0; layer < layers_; ++layer) {
      add(Kind::kUpdate, layer, 1);
    }
  }

  void grouped(std::int64_t microbatches) {
    for (std::size_t layer = 0; layer < layers_; ++layer) {
      add(Kind::kForward, layer, microbatches);
    }
    for (std::size_t layer = layers_; layer-- > 0;) {
      add(Kind::kBackward, layer, microbatches);
      add(Kind::kUpdate, layer, 1);
    }
  }

  void add(Kind kind, std::size_t layer, std::int64_t microbatches) {
    charge(budget_, 1);
    tasks_.push_back(
        {.kind = kind, .gpu = gpu_of(kind, layer), .layer = layer, .microbatches = microbatches});
  }

  std::int32_t gpu_of(Kind kind, std::size_t layer) const {
    switch (mode_) {
      case SwapMode::kDP:
      case SwapMode::kVDP: return replica_;
      case SwapMode::kPP: return stage_of(layer, layers_, work_.gpus);
      case SwapMode::kVPP: break;
    }
    // Round the GPUs: forward tasks, then on with the backward tasks.
    const std::size_t position = kind == Kind::kForward ? layer : 2 * layers_ - 1 - layer;
    return static_cast<std::int32_t>(position % static_cast<std::size_t>(work_.gpus));
  }

  const SwapMode mode_;
  const std::size_t layers_;
  const SwapWork work_;
  Budget* const budget_;
  std::int32_t replica_ = 0;
  std::vector<SwapTask> tasks_;
};

}  // namespace

const char* name_of(SwapMode mode) {
  switch (mode) {
    case SwapMode::kDP: return "DP";
    case SwapMode::kPP: return "PP";
    case SwapMode::kVDP: return "vDP";
    case SwapMode::kVPP: break;
  }
  return "vPP";
}

std::string to_string(const SwapTask& task) {
  const char* const kind = task.kind == Kind::kForward    ? "forward"
                           : task.kind == Kind::kBackward ? "backward"
                                                          : "update";
  return "GPU " + std::to_string(task.gpu) + ", " + kind + " of layer " + std::to_string(task.layer);
}

std::int32_t stage_of(std::size_t layer, std::size_t layers, std::int64_t stages) {
  return static_cast<std::int32_t>(layer * static_cast<std::size_t>(stages) / layers);
}

std::vector<SwapTask> swap_tasks(SwapMode mode, std::size_t layers, const SwapWork& work, Budget* budget) {
  return Tasks(mode, layers, work, budget).all();
}

}  // namespace plimsoll::estimator::swap
