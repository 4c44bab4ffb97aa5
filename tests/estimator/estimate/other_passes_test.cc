#include "estimator/estimate/other_passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "estimator/estimate/estimate.h"

namespace plimsoll::estimator {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct LoopJob {
  crds::ModelSpec model;
  crds::TrainingSpec training;
  GpuModel gpu = *GpuCatalog::built_in().find("A100-80GB");
  EstimateRequest request;

  LoopJob() {
    crds::TransformerModel& transformer = model.transformer.emplace();
    transformer.layers = 4;
    transformer.hidden = 256;
    transformer.heads = 4;
    transformer.ffn = 1024;
    transformer.vocab = 2000;
    transformer.sequence_length = 512;
    training.batch_size_per_trainer = 8;
    training.optimizer = crds::Optimizer::kAdamW;
  }
  Result<Estimate> result() {
    request.model = &model;
    request.training = &training;
    request.gpu = &gpu;
    return estimate_memory(request);
  }
  Estimate estimate() {
    Result<Estimate> estimate = result();
    EXPECT_TRUE(estimate.ok()) << (estimate ? "" : to_string(estimate.error()));
    return estimate ? *std::move(estimate) : Estimate{};
  }
  std::string refusal() {
    const Result<Estimate> estimate = result();
    EXPECT_FALSE(estimate.ok());
    return estimate ? "" : estimate.error().message;
  }
};

TEST(OtherPasses, AUsualLoopHasNone) {
  const crds::TrainingSpec training{.batch_size_per_trainer = 8, .last_batch_size = 8};
  EXPECT_FALSE(has_other_passes(training)) << "the last batch is as large as the others";
  EXPECT_THAT(order_of_passes(training), IsEmpty());
}

TEST(OtherPasses, AnEpochEndsWithItsLastBatchAndValidation) {
  EXPECT_THAT(
      order_of_passes({.batch_size_per_trainer = 8, .last_batch_size = 3, .validation_batch_size = 16}),
      ElementsAre(1, 2, 0));
}

TEST(OtherPasses, ALastBatchIsTakenInEqualPartsWhenMorePartsAreTried) {
  const crds::TrainingSpec training{
      .batch_size_per_trainer = 8, .gradient_accumulation = 4, .last_batch_size = 6};
  const Result<std::vector<OtherPass>> passes = other_passes({.training = &training}, nullptr, {});
  ASSERT_TRUE(passes.ok());
  ASSERT_EQ(passes->size(), 1U);
  EXPECT_EQ(passes->front().training.batch_size_per_trainer, 4);
}

TEST(OtherPasses, LengthsComeInARandomOrderThatIsAlwaysTheSame) {
  const crds::TrainingSpec training{.batch_size_per_trainer = 8, .sequence_lengths = {128, 256, 384}};
  const std::vector<std::size_t> order = order_of_passes(training);
  EXPECT_EQ(order, order_of_passes(training));
  for (const std::size_t pass : {0U, 1U, 2U, 3U}) {
    EXPECT_GE(std::count(order.begin(), order.end(), pass), 4);
  }
  EXPECT_FALSE(std::is_sorted(order.begin(), order.begin() + 4) &&
               std::is_sorted(order.begin() + 4, order.begin() + 8));
}

TEST(OtherPasses, TheLastSmallerBatchNeverTakesMoreTensors) {
  LoopJob job;
  const Estimate equal = job.estimate();
  job.training.last_batch_size = 5;
  const Estimate smaller = job.estimate();
  EXPECT_EQ(smaller.peak.allocated, equal.peak.allocated);
  EXPECT_GE(smaller.peak.reserved, equal.peak.reserved);
  EXPECT_LE(smaller.peak.reserved.count, equal.peak.reserved.count * 3 / 2);
}

TEST(OtherPasses, VaryingLengthsFragmentTheCache) {
  LoopJob job;
  const Estimate longest = job.estimate();
  job.training.sequence_lengths = {96, 160, 224, 288, 352, 416, 480};
  const Estimate varying = job.estimate();
  EXPECT_EQ(varying.peak.allocated, longest.peak.allocated);
  EXPECT_GT(varying.peak.reserved, longest.peak.reserved);
  EXPECT_EQ(varying.breakdown.total(), varying.peak.upper_bound);
}

// A length that is listed twice comes twice a round; the order in which lengths are listed changes the shuffle.
TEST(OtherPasses, NeitherMoreRoundsNorAnotherOrderReserveMore) {
  LoopJob job;
  const std::vector<std::int64_t> lengths = {96, 160, 224, 288, 352, 416, 480};
  job.training.sequence_lengths = lengths;
  const double reserved = static_cast<double>(job.estimate().peak.reserved.count);
  job.training.sequence_lengths.assign(lengths.rbegin(), lengths.rend());
  EXPECT_NEAR(static_cast<double>(job.estimate().peak.reserved.count), reserved, reserved * 0.02);
  for (int times = 1; times < 8; ++times) {
    job.training.sequence_lengths.insert(job.training.sequence_lengths.end(), lengths.begin(), lengths.end());
  }
  EXPECT_NEAR(static_cast<double>(job.estimate().peak.reserved.count), reserved, reserved * 0.02);
}

TEST(OtherPasses, ValidationTakesLessThanAnIterationOfTheSameBatch) {
  LoopJob job;
  const Estimate training = job.estimate();
  job.training.validation_batch_size = 8;
  EXPECT_EQ(job.estimate().peak.allocated, training.peak.allocated);
}

TEST(OtherPasses, AValidationBatchThatIsMuchLargerIsThePeak) {
  LoopJob job;
  const Bytes training = job.estimate().peak.allocated;
  job.training.validation_batch_size = 512;
  const Estimate estimate = job.estimate();
  EXPECT_GT(estimate.peak.allocated, training);
  EXPECT_EQ(estimate.peak_phase, "Forward");
  EXPECT_GT(estimate.breakdown.gradients.count, 0) << "zero_grad() comes after validation";
  ASSERT_FALSE(estimate.warnings.empty());
  EXPECT_THAT(estimate.warnings.back(), HasSubstr("validation passes of 512 samples"));
  const Bytes bound = estimate.peak.upper_bound;
  job.request.capacity = bound;
  EXPECT_TRUE(*Estimator().fits(job.request));
  job.request.capacity = training;
  EXPECT_FALSE(*Estimator().fits(job.request));
}

TEST(OtherPasses, ManyLayersAreNotExtrapolatedFromFew) {
  LoopJob job;
  job.model.transformer->layers = 24;
  const Estimate longest = job.estimate();
  job.training.sequence_lengths = {100, 200};
  EXPECT_GE(job.estimate().peak.reserved, longest.peak.reserved);
}

TEST(OtherPasses, WhatIsNotModelledIsRefused) {
  LoopJob job;
  job.training.sequence_lengths = {128, 513};
  EXPECT_THAT(job.refusal(), HasSubstr("training.sequenceLengths[1] must be from 1 to the 512 tokens"));
  job.training.sequence_lengths = {128};
  job.training.gradient_accumulation = 2;
  job.training.parallelism.pipeline = 2;
  job.request.trainers = 2;
  EXPECT_THAT(job.refusal(), HasSubstr("not modelled for a pipeline"));
  LoopJob dlrm;
  dlrm.model = {};
  dlrm.model.dlrm.emplace();
  dlrm.model.dlrm->dense_features = 8;
  dlrm.model.dlrm->bottom_mlp = {16};
  dlrm.model.dlrm->top_mlp = {1};
  dlrm.model.dlrm->interaction = crds::Interaction::kCat;
  dlrm.training.sequence_lengths = {128};
  EXPECT_THAT(dlrm.refusal(), HasSubstr("training.sequenceLengths is for model.transformer"));
  dlrm.training.sequence_lengths.clear();
  dlrm.training.validation_batch_size = 4096;
  EXPECT_GT(dlrm.estimate().peak.allocated.count, 0);
}

TEST(OtherPasses, GradScalerTakesAFewNumbers) {
  LoopJob job;
  job.training.precision = crds::Precision::kFP16Mixed;
  const Bytes plain = job.estimate().peak.allocated;
  job.training.grad_scaler = true;
  const Bytes scaled = job.estimate().peak.allocated;
  EXPECT_GT(scaled, plain);
  EXPECT_LE(scaled, plain + Bytes{6 * kCudaGranule});
}

TEST(OtherPasses, AFullCheckpointOfFSDP2CanBeThePeak) {
  LoopJob job;
  job.model.transformer->hidden = 1024;
  job.model.transformer->ffn = 4096;
  job.model.transformer->sequence_length = 64;
  job.training.batch_size_per_trainer = 1;
  job.training.parallelism.strategy = crds::ParallelStrategy::kFSDP2;
  job.request.trainers = 8;
  const Bytes without = job.estimate().peak.allocated;
  job.training.checkpoint_saving = crds::CheckpointSaving::kSharded;
  EXPECT_EQ(job.estimate().peak.allocated, without);
  job.training.checkpoint_saving = crds::CheckpointSaving::kFull;
  const Estimate full = job.estimate();
  EXPECT_GT(full.peak.allocated, full.dense_parameters * 3) << "the model and Adam's states are gathered";
  EXPECT_THAT(full.warnings,
              Contains(HasSubstr("when a checkpoint is saved, training.checkpointSaving Full")));
  job.training.checkpoint_saving = crds::CheckpointSaving::kFullOffloaded;
  const Estimate offloaded = job.estimate();
  EXPECT_LT(offloaded.peak.allocated * 2, full.peak.allocated);
  EXPECT_GE(offloaded.host.checkpoint, offloaded.dense_parameters * 3);
}

TEST(OtherPasses, ACheckpointThatIsNotModelledIsRefusedWithOneThatIs) {
  LoopJob job;
  job.training.parallelism.strategy = crds::ParallelStrategy::kFSDP2;
  job.training.parallelism.tensor = 2;
  job.request.trainers = 4;
  job.training.checkpoint_saving = crds::CheckpointSaving::kFull;
  EXPECT_THAT(job.refusal(), HasSubstr("save with Sharded or ShardedAsync"));
  job.training.checkpoint_saving = crds::CheckpointSaving::kShardedAsync;
  EXPECT_GT(job.estimate().host.checkpoint, Bytes{});
}

}  // namespace
}  // namespace plimsoll::estimator
