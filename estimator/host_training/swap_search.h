// search_swap_plan(): how a model trains through the memory of one host on some GPUs of one model (Harmony, HotOS'21), with what
// that takes of the GPUs and of the host.
//
//   Result<SwapFound> found = search_swap_plan({.job = request, .samples = 64, .gpus = 4, .usable = 76_GiB});
//
// The layers' profile is derived from the model (layer_costs/layer_profile.h), the node's links from its GPU model (swap_machine.h). Jobs
// that clip the norm of their gradients update all layers at the end of an iteration. Pure; any thread; charges job.budget.
#pragma once

#include <cstdint>
#include <limits>

#include "base/bytes.h"
#include "base/result.h"
#include "estimator/host_training/swap_training.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline host_training {

struct SwapSearch {
  EstimateRequest job;       // model, training and gpu: required. Of the batch nothing is used
  std::int64_t samples = 1;  // of an iteration, of all GPUs together
  std::int64_t gpus = 1;     // of one node
  Bytes usable;              // of a GPU's memory, CUDA's context included
  Bytes node_memory{};       // of the host; 0: not known
  double seconds_to_beat = std::numeric_limits<double>::infinity();
};

struct SwapFound {
  SwapTraining training;
  Estimate estimate;  // of the fullest GPU; its upper bound is at most `usable`
};

// Errors: kUnfittable where no plan fits the GPUs or the host, or none takes less than seconds_to_beat; kUnsupported for a model
// without a list of layers, or a card without known times; those of the estimator.
Result<SwapFound> search_swap_plan(const SwapSearch& search);

}  // namespace plimsoll::estimator::host_training
