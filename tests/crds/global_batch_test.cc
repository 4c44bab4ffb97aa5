#include "crds/global_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace plimsoll::crds {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TrainingSpec of_global_batch(std::int64_t size) {
  TrainingSpec training;
  training.global_batch_size = size;
  return training;
}

std::vector<BatchSplit> splits_of(const TrainingSpec& training, std::int64_t trainers) {
  const Result<std::vector<BatchSplit>> splits = batch_splits(training, trainers);
  EXPECT_TRUE(splits.ok()) << splits.error().message;
  return splits ? *splits : std::vector<BatchSplit>();
}

std::string refusal(const TrainingSpec& training, std::int64_t trainers) {
  const Result<std::vector<BatchSplit>> splits = batch_splits(training, trainers);
  EXPECT_FALSE(splits.ok());
  return splits ? std::string() : splits.error().message;
}

TEST(GlobalBatch, ABatchOfEachTrainerIsTheSameForAnyNumberOfThem) {
  TrainingSpec training;
  training.batch_size_per_trainer = 32;
  training.gradient_accumulation = 4;
  training.parallelism.tensor = 8;
  for (const std::int64_t trainers : {1, 7, 64}) {
    EXPECT_THAT(splits_of(training, trainers), ElementsAre(BatchSplit{32, 4}));
  }
  EXPECT_EQ(global_batch_of(training, 64), 256);
  EXPECT_EQ(global_batch_of(training, 7), 0) << "they are no whole replicas";
}

TEST(GlobalBatch, IsKeptExactlyWhateverTheNumberOfTrainers) {
  const TrainingSpec training = of_global_batch(1024);
  EXPECT_THAT(splits_of(training, 1), ElementsAre(BatchSplit{1024, 1}));
  EXPECT_THAT(splits_of(training, 64), ElementsAre(BatchSplit{16, 1}));
  EXPECT_THAT(splits_of(training, 1024), ElementsAre(BatchSplit{1, 1}));
  EXPECT_THAT(refusal(training, 24),
              HasSubstr("training.globalBatchSize 1024 cannot be divided among 24 trainers"));
  EXPECT_THAT(refusal(training, 2048), HasSubstr("cannot be divided among 2048 trainers"));
  EXPECT_EQ(global_batch_of(training, 64), 1024);
}

TEST(GlobalBatch, TrainersOfOneReplicaShareItsSamples) {
  TrainingSpec training = of_global_batch(64);
  training.parallelism.tensor = 2;
  training.parallelism.pipeline = 2;
  training.parallelism.context = 2;
  EXPECT_THAT(splits_of(training, 16), ElementsAre(BatchSplit{32, 1}));
  EXPECT_THAT(refusal(training, 12), HasSubstr("12 trainers, which are 1 replicas"));
  EXPECT_THAT(refusal(training, 4), HasSubstr("cannot be divided"));
}

TEST(GlobalBatch, IsTakenInMorePartsUpToTheLimit) {
  TrainingSpec training = of_global_batch(96);
  training.max_gradient_accumulation = 8;
  EXPECT_THAT(splits_of(training, 8), ElementsAre(BatchSplit{12, 1}, BatchSplit{12, 2}, BatchSplit{12, 3},
                                                  BatchSplit{12, 4}, BatchSplit{12, 6}));
  training.gradient_accumulation = 4;
  EXPECT_THAT(splits_of(training, 8), ElementsAre(BatchSplit{12, 4}, BatchSplit{12, 6}));
  training.max_gradient_accumulation = 0;
  EXPECT_THAT(splits_of(training, 8), ElementsAre(BatchSplit{12, 4}));
  EXPECT_THAT(refusal(training, 16),
              HasSubstr("6 samples, which are no multiple of training.gradientAccumulation 4"));
  EXPECT_THAT(refusal(training, 48), HasSubstr("2 samples, which are no multiple"));
}

TEST(GlobalBatch, SizesThatAreNoSizesAreRefused) {
  TrainingSpec training = of_global_batch(64);
  EXPECT_THAT(refusal(training, 0), HasSubstr("cannot be divided among 0 trainers"));
  EXPECT_THAT(refusal(training, -8), HasSubstr("cannot be divided"));
  training.parallelism.tensor = std::numeric_limits<std::int64_t>::max();
  training.parallelism.pipeline = 4096;
  EXPECT_THAT(refusal(training, 8), HasSubstr("cannot be divided"));
  training.max_gradient_accumulation = std::numeric_limits<std::int64_t>::max();
  training.parallelism = {};
  training.global_batch_size = 1 << 30;
  EXPECT_LE(splits_of(training, 1).back().accumulation, kMaxGradientAccumulation);
}

TEST(GlobalBatch, ATrainingWithASplitHasABatchOfEachTrainer) {
  TrainingSpec training = of_global_batch(64);
  training.max_gradient_accumulation = 8;
  const TrainingSpec with = with_split(training, {.batch_size = 16, .accumulation = 2});
  EXPECT_THAT(splits_of(with, 1), ElementsAre(BatchSplit{16, 2}));
  EXPECT_EQ(with.max_gradient_accumulation, 0);
}

}  // namespace
}  // namespace plimsoll::crds
