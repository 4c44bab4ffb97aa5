#include "estimator/estimate/largest_batch.h"

#include <gtest/gtest.h>

#include <random>

#include "estimator/estimate/estimate.h"
#include "tests/estimator/graph_files.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

using testing::gpt;

// Dense 8 -> Linear 16, ReLU -> Linear 1 -> BCE on the CPU with plain SGD; estimate_test.cc derives its bytes by
// hand. With one sample it needs 644 (parameters) + 36 (inputs) + 644 (gradients) + 64 (of the ReLU) bytes. From
// five samples on, the peak is the ReLU's backward: 644 + 68 + (36 + 3 * 64) a sample.
struct TwoLayers {
  crds::ModelSpec model;
  crds::TrainingSpec training;
  EstimateRequest request;

  TwoLayers() {
    model.dlrm.emplace();
    model.dlrm->dense_features = 8;
    model.dlrm->bottom_mlp = {16};
    model.dlrm->top_mlp = {1};
    model.dlrm->interaction = crds::Interaction::kCat;
    training.batch_size_per_trainer = 4;
    training.optimizer = crds::Optimizer::kSGD;
  }
  Result<std::int64_t> within(Bytes capacity) {
    request.model = &model;
    request.training = &training;
    request.device = Device::kCpu;
    return largest_batch(request, capacity);
  }
};

Bytes bytes_of(std::int64_t samples) {
  return Bytes{644 + 68 + (36 + 3 * 64) * samples};
}

TEST(LargestBatch, IsTheLastThatFits) {
  TwoLayers job;
  for (const std::int64_t samples : {5, 100, 12'345, 1'000'000}) {
    EXPECT_EQ(*job.within(bytes_of(samples)), samples);
    EXPECT_EQ(*job.within(bytes_of(samples) - 1_B), samples - 1);
  }
}

TEST(LargestBatch, IsZeroIfNotEvenOneSampleFits) {
  TwoLayers job;
  const Bytes one{644 + 36 + 644 + 64};
  EXPECT_EQ(*job.within(one), 1);
  EXPECT_EQ(*job.within(one - 1_B), 0);
  EXPECT_EQ(*job.within(Bytes{}), 0);
  EXPECT_EQ(*job.within(Bytes{-1}), 0);
}

TEST(LargestBatch, DoesNotDependOnTheBatchOfTheRequest) {
  TwoLayers job;
  for (const std::int64_t requested : {1, 777, 1'000'000'000}) {
    job.training.batch_size_per_trainer = requested;
    EXPECT_EQ(*job.within(bytes_of(100)), 100) << requested;
    EXPECT_EQ(job.training.batch_size_per_trainer, requested) << "the request stays as it is";
  }
}

TEST(LargestBatch, IsAMultipleOfTheMicroBatches) {
  TwoLayers job;
  job.training.gradient_accumulation = 4;
  const Result<std::int64_t> largest = job.within(100_KiB);
  ASSERT_TRUE(largest.ok()) << to_string(largest.error());
  EXPECT_GT(*largest, 0);
  EXPECT_EQ(*largest % 4, 0);
  job.training.batch_size_per_trainer = *largest;
  EXPECT_LE(estimate_memory(job.request)->peak.upper_bound, 100_KiB);
  job.training.batch_size_per_trainer += 4;
  EXPECT_GT(estimate_memory(job.request)->peak.upper_bound, 100_KiB);
}

TEST(LargestBatch, MoreCapacityNeverTakesLess) {
  const std::uint32_t seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  TwoLayers job;
  std::int64_t before = 0;
  for (Bytes capacity = 1_KiB; capacity < 1_GiB;
       capacity += Bytes{capacity.count / 2 + static_cast<std::int64_t>(random() % 1000)}) {
    const std::int64_t largest = *job.within(capacity);
    EXPECT_GE(largest, before) << to_string(capacity);
    before = largest;
  }
}

TEST(LargestBatch, OfAGraphIsTheLastThatFits) {
  const crds::ModelSpec model{
      .family = {}, .dlrm = {}, .transformer = {}, .graph = crds::GraphReference{}, .embeddings = {}};
  crds::TrainingSpec training;
  training.batch_size_per_trainer = 1;
  EstimateRequest request;
  request.model = &model;
  request.training = &training;
  request.graph = &gpt();
  request.device = Device::kCpu;
  std::int64_t before = 0;
  for (const Bytes capacity : {512_KiB, 1_MiB, 64_MiB, 80_GiB}) {
    training.batch_size_per_trainer = 1;
    const Result<std::int64_t> largest = largest_batch(request, capacity);
    ASSERT_TRUE(largest.ok());
    EXPECT_GT(*largest, before);
    before = *largest;
    training.batch_size_per_trainer = *largest;
    EXPECT_LE(estimate_memory(request)->peak.upper_bound, capacity);
    training.batch_size_per_trainer = *largest + 1;
    EXPECT_GT(estimate_memory(request)->peak.upper_bound, capacity);
  }
  EXPECT_EQ(*largest_batch(request, 1_KiB), 0);
}

TEST(LargestBatch, AnImpossibleModelIsAnError) {
  TwoLayers job;
  job.model.dlrm->top_mlp = {-1};
  const Result<std::int64_t> largest = job.within(1_GiB);
  ASSERT_FALSE(largest.ok());
  EXPECT_EQ(largest.error().code, ErrorCode::kInvalid);
}

}  // namespace
}  // namespace plimsoll::estimator
