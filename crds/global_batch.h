// How the samples of one optimizer step are divided among a job's trainers. Pure functions; any thread.
//
//   const Result<std::vector<BatchSplit>> splits = batch_splits(job.spec.training, 64);
//   for (const BatchSplit& split : *splits) estimate(with_split(job.spec.training, split));
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "crds/training_job.h"

namespace plimsoll::crds {

// What one replica of the model takes in an optimizer step, in equal parts.
struct BatchSplit {
  std::int64_t batch_size = 0;
  std::int64_t accumulation = 1;  // parts

  // Samples of one part.
  std::int64_t micro_batch() const { return accumulation > 0 ? batch_size / accumulation : batch_size; }
  bool operator==(const BatchSplit&) const = default;
};

// The ways to divide the batch among this number of trainers, that with the fewest parts first; at least one. With
// batchSizePerTrainer there is one, whatever the number. Errors: kInvalid, if globalBatchSize is no multiple of the
// replicas, or their share has no allowed number of equal parts.
Result<std::vector<BatchSplit>> batch_splits(const TrainingSpec& training, std::int64_t trainers);

// The training of a job that gives batchSizePerTrainer, with the samples of this split.
TrainingSpec with_split(const TrainingSpec& training, const BatchSplit& split);

// Samples of an optimizer step of this number of trainers; saturates. 0 if they are not whole replicas.
std::int64_t global_batch_of(const TrainingSpec& training, std::int64_t trainers);

}  // namespace plimsoll::crds
