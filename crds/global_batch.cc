#include "crds/global_batch.h"

#include <algorithm>
#include <string>

#include "base/bytes.h"

namespace plimsoll::crds {
namespace {

// Trainers that hold one replica of the model; saturates.
std::int64_t replica_size(const Parallelism& parallelism) {
  const Bytes size = Bytes{parallelism.tensor} * parallelism.pipeline * parallelism.context;
  return std::max<std::int64_t>(1, size.count);
}

}  // namespace

Result<std::vector<BatchSplit>> batch_splits(const TrainingSpec& training, std::int64_t trainers) {
  if (training.global_batch_size == 0) {
    return std::vector{BatchSplit{training.batch_size_per_trainer, training.gradient_accumulation}};
  }
  const std::int64_t size = replica_size(training.parallelism);
  const std::int64_t replicas = trainers / size;
  const std::string batch = "training.globalBatchSize " + std::to_string(training.global_batch_size);
  if (replicas < 1 || trainers % size != 0 || training.global_batch_size % replicas != 0) {
    return Error(ErrorCode::kInvalid, batch + " cannot be divided among " + std::to_string(trainers) +
                                          " trainers, which are " + std::to_string(replicas) +
                                          " replicas of the model; give a multiple of the replicas");
  }
  const std::int64_t share = training.global_batch_size / replicas;
  const std::int64_t most =
      std::min(share, std::max(training.gradient_accumulation,
                               std::min(training.max_gradient_accumulation, kMaxGradientAccumulation)));
  std::vector<BatchSplit> splits;
  for (std::int64_t parts = std::max<std::int64_t>(1, training.gradient_accumulation); parts <= most;
       ++parts) {
    if (share % parts == 0) {
      splits.push_back({share, parts});
    }
  }
  if (splits.empty()) {
    return Error(ErrorCode::kInvalid, batch + " leaves each of " + std::to_string(trainers) + " trainers " +
                                          std::to_string(share) + " samples, which are no multiple of " +
                                          "training.gradientAccumulation " +
                                          std::to_string(training.gradient_accumulation));
  }
  return splits;
}

TrainingSpec with_split(const TrainingSpec& training, const BatchSplit& split) {
  TrainingSpec with = training;
  with.batch_size_per_trainer = split.batch_size;
  with.gradient_accumulation = split.accumulation;
  with.global_batch_size = 0;
  with.max_gradient_accumulation = 0;
  return with;
}

std::int64_t global_batch_of(const TrainingSpec& training, std::int64_t trainers) {
  const std::int64_t size = replica_size(training.parallelism);
  if (trainers % size != 0) {
    return 0;
  }
  return training.global_batch_size > 0 ? training.global_batch_size
                                        : (Bytes{training.batch_size_per_trainer} * (trainers / size)).count;
}

}  // namespace plimsoll::crds
