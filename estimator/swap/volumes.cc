#include "estimator/swap/volumes.h"

#include <algorithm>
#include <string>

#include "base/json/edit.h"

namespace plimsoll::estimator::inline swap {
namespace {

using Kind = SwapTask::Kind;

// Whose weights are on a GPU, between tasks.
struct Resident {
  bool any = false;
  bool updated = false;
  std::size_t layer = 0;
};

SwapVolumes difference(const SwapVolumes& after, const SwapVolumes& before) {
  return {.weights = after.weights - before.weights,
          .gradients = after.gradients - before.gradients,
          .state = after.state - before.state,
          .stash = after.stash - before.stash,
          .hand_over = after.hand_over - before.hand_over,
          .p2p = after.p2p - before.p2p};
}

class Walk {
 public:
  Walk(SwapMode mode, const std::vector<SwapLayer>& layers, const SwapWork& work, const SwapRules& rules,
       Budget* budget)
      : mode_(mode),
        layers_(layers),
        work_(work),
        rules_(rules),
        tasks_(swap_tasks(mode, layers.size(), work, budget)),
        resident_(static_cast<std::size_t>(work.gpus)) {}

  SwapVolumes run(std::vector<SwapStep>* steps) && {
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      const SwapTask& task = tasks_[i];
      const SwapVolumes before = volumes_;
      if (is_grouped(mode_)) {
        run_grouped(task);
      } else {
        run_one(task, i);
      }
      if (steps != nullptr) {
        steps->push_back({task, difference(volumes_, before)});
      }
    }
    for (std::size_t gpu = 0; gpu < resident_.size(); ++gpu) {
      evict(gpu);
    }
    const bool replicated = mode_ == SwapMode::kDP || mode_ == SwapMode::kVDP;
    for (const SwapLayer& layer : layers_) {
      if (replicated && work_.gpus > 1) {
        volumes_.all_reduce_payload += layer.gradients * work_.gpus;
        volumes_.all_reduce_wire += layer.gradients * (2 * (work_.gpus - 1));
      }
    }
    return volumes_;
  }

 private:
  const SwapLayer& of(const SwapTask& task) const { return layers_[task.layer]; }

  // Per-GPU swapping: state comes and goes with each task; what the next task of the GPU uses stays.
  void run_one(const SwapTask& task, std::size_t index) {
    touch(task);
    switch (task.kind) {
      case Kind::kForward:
        volumes_.stash += of(task).input;
        hand(task, of(task).output, index);
        break;
      case Kind::kBackward:
        volumes_.stash += of(task).input;
        volumes_.gradients += of(task).gradients * 2;
        hand(task, of(task).input_gradient, index);
        break;
      case Kind::kUpdate:
        volumes_.gradients += of(task).gradients * 2;
        volumes_.state += of(task).state * 2;
        break;
    }
  }

  void hand(const SwapTask& task, Bytes result, std::size_t index) {
    if (index + 1 < tasks_.size() && tasks_[index + 1].kind != Kind::kUpdate &&
        tasks_[index + 1].gpu != task.gpu && tasks_[index + 1].layer != task.layer) {
      volumes_.p2p += result;
    }
  }

  void touch(const SwapTask& task) {
    const auto gpu = static_cast<std::size_t>(task.gpu);
    if (rules_.paging == SwapPaging::kStrict) {
      volumes_.weights += of(task).weights * 2;
      return;
    }
    Resident& resident = resident_[gpu];
    if (!resident.any || resident.layer != task.layer) {
      evict(gpu);
      resident = {.any = true, .updated = false, .layer = task.layer};
      volumes_.weights += of(task).weights;
    }
    resident.updated = resident.updated || task.kind == Kind::kUpdate;
  }

  void evict(std::size_t gpu) {
    Resident& resident = resident_[gpu];
    if (resident.any && (resident.updated || rules_.paging == SwapPaging::kOneLayer)) {
      volumes_.weights += layers_[resident.layer].weights;
    }
    resident.any = false;
  }

  // Harmony: weights come once for a task's microbatches and are dropped after forward; gradients are used where they are.
  void run_grouped(const SwapTask& task) {
    const bool fused = rules_.fused_turn && task.layer + 1 == layers_.size();
    switch (task.kind) {
      case Kind::kForward:
        if (!fused) {
          volumes_.weights += of(task).weights;
          volumes_.stash += of(task).input * task.microbatches;
        }
        pass(of(task).output * task.microbatches);
        break;
      case Kind::kBackward:
        volumes_.weights += of(task).weights;
        volumes_.stash += fused ? Bytes{} : of(task).input * task.microbatches;
        pass(of(task).input_gradient * task.microbatches);
        break;
      case Kind::kUpdate:
        volumes_.weights += of(task).weights;
        volumes_.state += of(task).state * 2;
        break;
    }
  }

  // Each task's successor is on another GPU, or all of its microbatches wait on the host.
  void pass(Bytes results) {
    if (mode_ == SwapMode::kVPP && work_.gpus > 1) {
      volumes_.p2p += results;
    } else {
      volumes_.hand_over += results * 2;
    }
  }

  const SwapMode mode_;
  const std::vector<SwapLayer>& layers_;
  const SwapWork work_;
  const SwapRules rules_;
  const std::vector<SwapTask> tasks_;
  std::vector<Resident> resident_;
  SwapVolumes volumes_;
};

// Sums over layers.
struct Sums {
  explicit Sums(const std::vector<SwapLayer>& layers) {
    for (const SwapLayer& layer : layers) {
      weights += layer.weights;
      gradients += layer.gradients;
      state += layer.state;
      input += layer.input;
      handed += layer.output + layer.input_gradient;
    }
  }
  Bytes weights, gradients, state, input, handed;
};

Bytes at_stage_borders(const std::vector<SwapLayer>& layers, std::int64_t stages) {
  Bytes sum;
  for (std::size_t i = 0; i + 1 < layers.size(); ++i) {
    if (stage_of(i, layers.size(), stages) != stage_of(i + 1, layers.size(), stages)) {
      sum += layers[i].output + layers[i + 1].input_gradient;
    }
  }
  return sum;
}

// Of a GPU, or a stage, that runs `microbatches`: weights that stay because the next task is of the same layer. The first
// layer's stay from backward to the next forward, or to the update; the last one's from forward to backward.
Bytes kept(const std::vector<SwapLayer>& layers, std::size_t first, std::size_t last,
           std::int64_t microbatches) {
  return (layers[first].weights + layers[last].weights) * microbatches;
}

Bytes own_weights(SwapMode mode, const std::vector<SwapLayer>& layers, const SwapWork& work,
                  SwapPaging paging) {
  const std::int64_t copies = mode == SwapMode::kDP ? work.gpus : 1;
  const std::int64_t each = work.microbatches / copies;
  const Bytes weights = Sums(layers).weights;
  if (paging == SwapPaging::kStrict) {
    return weights * (copies * (4 * each + 2));
  }
  Bytes stays;  // fetches that are not needed
  const std::int64_t stages = mode == SwapMode::kDP ? 1 : work.gpus;
  Bytes alone;  // of stages of one layer, which is never evicted
  for (std::size_t first = 0; first < layers.size();) {
    std::size_t last = first;
    while (last + 1 < layers.size() &&
           stage_of(last + 1, layers.size(), stages) == stage_of(first, layers.size(), stages)) {
      ++last;
    }
    if (first == last) {
      alone += layers[first].weights;
      stays += layers[first].weights * (2 * each);  // all but one of the 2 m + 1 touches
    } else {
      stays += kept(layers, first, last, each);
    }
    first = last + 1;
  }
  const Bytes fetched = weights * (2 * each + 1) - stays;
  const Bytes written = paging == SwapPaging::kOneLayer ? fetched : weights;
  return (fetched + written) * copies;
}

}  // namespace

Result<void> check_work(SwapMode mode, std::size_t layers, const SwapWork& work) {
  if (work.gpus < 1 || work.microbatches < 1 || layers < 1) {
    return invalid("layers, gpus and microbatches must be at least 1");
  }
  if ((mode == SwapMode::kDP || mode == SwapMode::kVDP) && work.microbatches % work.gpus != 0) {
    return invalid(std::string(name_of(mode)) + " needs as many microbatches on each GPU: " +
                   std::to_string(work.gpus) + " GPUs do not divide " + std::to_string(work.microbatches));
  }
  if (mode == SwapMode::kPP && static_cast<std::size_t>(work.gpus) > layers) {
    return invalid("a pipeline of " + std::to_string(work.gpus) + " stages needs as many layers; there are " +
                   std::to_string(layers));
  }
  return {};
}

SwapVolumes walk_volumes(SwapMode mode, const std::vector<SwapLayer>& layers, const SwapWork& work,
                         const SwapRules& rules, Budget* budget, std::vector<SwapStep>* steps) {
  return Walk(mode, layers, work, rules, budget).run(steps);
}

SwapVolumes closed_volumes(SwapMode mode, const std::vector<SwapLayer>& layers, const SwapWork& work,
                           const SwapRules& rules) {
  const Sums sums(layers);
  const std::int64_t m = work.microbatches;
  const bool replicated = mode == SwapMode::kDP || mode == SwapMode::kVDP;
  const std::int64_t copies = replicated ? work.gpus : 1;
  SwapVolumes volumes{.state = sums.state * (2 * copies), .stash = sums.input * (2 * m)};
  if (replicated && work.gpus > 1) {
    volumes.all_reduce_payload = sums.gradients * work.gpus;
    volumes.all_reduce_wire = sums.gradients * (2 * (work.gpus - 1));
  }
  if (!is_grouped(mode)) {
    volumes.weights = own_weights(mode, layers, work, rules.paging);
    volumes.gradients = sums.gradients * (2 * m + 2 * copies);
    volumes.p2p = mode == SwapMode::kPP ? at_stage_borders(layers, work.gpus) * m : Bytes{};
    return volumes;
  }
  const Bytes not_forward = rules.fused_turn ? layers.back().weights : Bytes{};
  volumes.weights = (sums.weights * 3 - not_forward) * copies;
  volumes.stash -= rules.fused_turn ? layers.back().input * (2 * m) : Bytes{};
  const bool by_p2p = mode == SwapMode::kVPP && work.gpus > 1;
  (by_p2p ? volumes.p2p : volumes.hand_over) = sums.handed * (by_p2p ? m : 2 * m);
  return volumes;
}

JsonObject to_json(const SwapVolumes& volumes) {
  JsonObject json;
  json["weights"] = Json::Int64(volumes.weights.count);
  json["gradients"] = Json::Int64(volumes.gradients.count);
  json["optimizerState"] = Json::Int64(volumes.state.count);
  json["stash"] = Json::Int64(volumes.stash.count);
  json["handOver"] = Json::Int64(volumes.hand_over.count);
  json["p2p"] = Json::Int64(volumes.p2p.count);
  json["allReducePayload"] = Json::Int64(volumes.all_reduce_payload.count);
  json["allReduceWire"] = Json::Int64(volumes.all_reduce_wire.count);
  json["swapped"] = Json::Int64(volumes.swapped().count);
  return json;
}

}  // namespace plimsoll::estimator::swap
