// search_remedies(): the cheapest way in which a training that exceeds its GPUs fits them: activations that are computed again, state in
// host memory, more GPUs, smaller micro-batches with accumulation, or several of these together. The global batch stays.
//
//   Result<RemedyAnswer> answer = search_remedies({.job = request, .capacity = 62_GiB, .most_trainers = 64});
//   if (answer->best) answer->best->gpu_seconds();
//
// GPUs are multiples of the requested ones that divide a replica's batch, at most 64 of them; micro-batches have at most 16 sizes for each:
// the largest, and one sample. Of all settings the times are computed, and then the memory of the cheapest ones, until one fits; so
// the answer is the best of all of them, and never dearer than what one remedy does alone. Pure; any thread; charges job.budget.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/types/request.h"

namespace plimsoll::estimator::inline host_training {

// How a training is set. `accumulation`: micro-batches of an iteration and replica.
struct RemedySetting {
  std::int64_t trainers = 1;
  std::int64_t batch_size = 1;  // of a replica, in an iteration
  std::int64_t accumulation = 1;
  crds::ActivationCheckpointing checkpointing = crds::ActivationCheckpointing::kNone;
  crds::Offload offload = crds::Offload::kNone;
  std::int64_t offload_percent = 0;  // 0 with kNone

  std::int64_t micro_batch() const { return batch_size / accumulation; }
  bool operator==(const RemedySetting&) const = default;
};

struct Remedy {
  RemedySetting setting{};
  Bytes device{};      // bound of the GPU memory of the most loaded trainer
  Bytes host{};        // of a trainer
  double seconds = 0;  // of an iteration

  // What an iteration, and so a sample, costs.
  double gpu_seconds() const { return seconds * static_cast<double>(setting.trainers); }
};

struct RemedySearch {
  // model, training, gpu: required; trainers and per_node as requested. What the request has of recomputation and offload may be
  // raised and lowered; its micro-batches only become smaller, and its GPUs more.
  EstimateRequest job;
  Bytes capacity;                    // of a GPU, CUDA's context included
  Bytes node_memory = Bytes::max();  // of a node's host, that its trainers may take together
  std::int64_t gpus_of_node = 1;     // for more trainers than requested
  std::int64_t most_trainers = 1;    // 1, or less than requested: as requested
};

struct RemedyAnswer {
  Remedy as_requested;
  bool fits_as_requested = false;
  // Each remedy alone, the cheapest setting that fits.
  std::optional<Remedy> recomputation;
  std::optional<Remedy> offload;
  std::optional<Remedy> more_gpus;
  std::optional<Remedy> smaller_micro_batches;
  std::optional<Remedy> best;   // of all together
  std::int64_t considered = 0;  // settings
  std::int64_t estimated = 0;   // of them, those whose memory was estimated
};

// Errors: kUnsupported where times are not known for the model and the card, or the model has embedding tables; those of the estimator.
// Throws the budget's BudgetExceeded.
Result<RemedyAnswer> search_remedies(const RemedySearch& search);

}  // namespace plimsoll::estimator::host_training
