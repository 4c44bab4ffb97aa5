// search_offload(): the least of a training's state that has to be in host memory for the training to fit its GPUs, where the
// library that trains can keep a part of it there: Megatron-LM the states of some parameters, DeepSpeed and FSDP all or nothing.
//
//   Result<OffloadAnswer> answer = search_offload({.job = request, .capacity = 40_GiB});
//   answer->points[*answer->least].percent;     // 46: of the optimizer's elements
//
// Each point is an estimate of its own, and an iteration time (docs/speed.md, On the host). Pure; any thread; charges job.budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline host_training {

struct OffloadPoint {
  crds::Offload offload = crds::Offload::kNone;
  std::int64_t percent = 0;       // of the elements that a trainer updates, how many on the host
  Bytes device{};                 // bound of the GPU memory of the most loaded trainer
  Bytes host{};                   // of a trainer: what it keeps in its host's memory
  std::optional<double> seconds;  // of an iteration; nothing: not known for the card or the model
  bool fits_device = false;
  bool fits_host = false;

  bool fits() const { return fits_device && fits_host; }
};

// Seconds of an iteration that were measured with nothing and with all of the optimizer on the host, if they were. They replace
// ours, and what lies between follows them.
struct MeasuredOffload {
  std::optional<double> none;
  std::optional<double> all;
};

struct OffloadSearch {
  // model, training, gpu: required; per_node at most trainers. Of training.parallelism.offload and offload_percent nothing is used.
  EstimateRequest job;
  Bytes capacity;                    // of a GPU, CUDA's context included
  Bytes node_memory = Bytes::max();  // of a node's host, that its trainers may take together
  MeasuredOffload measured{};
};

struct OffloadAnswer {
  // From nothing to all: what the strategy can do, with Megatron in quarters, and the least that fits. By rising `percent`.
  std::vector<OffloadPoint> points;
  std::optional<std::size_t> least;  // the first of them that fits; nothing: none does
};

// Errors: kUnsupported for a strategy that keeps nothing in host memory, a model with embedding tables, and `measured.all` where
// times are not known; kInvalid where `measured.all` is no longer than nothing
// takes; those of the estimator.
Result<OffloadAnswer> search_offload(const OffloadSearch& search);

}  // namespace plimsoll::estimator::host_training
