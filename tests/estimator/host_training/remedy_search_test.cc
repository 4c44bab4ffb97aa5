#include "estimator/host_training/remedy_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>

#include "estimator/estimate/estimate.h"
#include "estimator/host_training/offload_search.h"
#include "estimator/speed/iteration_time.h"
#include "tests/estimator/provisioner_fixture.h"
#include "tests/testing/random_cases.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

using crds::ActivationCheckpointing;
using crds::Offload;
using crds::ParallelStrategy;
using plimsoll::testing::available;
using ::testing::HasSubstr;

class RemedySearchTest : public ::testing::Test {
 protected:
  RemedySearchTest() {
    crds::TransformerModel& transformer = model_.transformer.emplace();
    transformer.layers = 16;
    transformer.hidden = 2048;
    transformer.heads = 16;
    transformer.ffn = 8192;
    transformer.vocab = 32'000;
    transformer.sequence_length = 2048;
    transformer.attention = crds::AttentionKind::kFlash;
    training_.batch_size_per_trainer = 16;
    training_.precision = crds::Precision::kBF16Mixed;
    training_.optimizer = crds::Optimizer::kAdamW;
    training_.parallelism.strategy = ParallelStrategy::kMegatron;
    search_.job = {.model = &model_, .training = &training_, .gpu = &gpu_, .trainers = 2, .per_node = 2};
    search_.capacity = 40_GiB;
    search_.gpus_of_node = 8;
    search_.most_trainers = 16;
  }

  RemedyAnswer answer() const {
    const Result<RemedyAnswer> found = search_remedies(search_);
    EXPECT_TRUE(found.ok()) << (found ? "" : to_string(found.error()));
    return found ? *found : RemedyAnswer();
  }

  crds::ModelSpec model_;
  crds::TrainingSpec training_;
  GpuModel gpu_ = available("A100-80GB", 8).model;
  RemedySearch search_;
};

// The cheapest of settings that are made here, without the search.
struct Cheapest {
  const RemedySearch& search;
  double gpu_seconds = std::numeric_limits<double>::infinity();

  void consider(const crds::TrainingSpec& training, std::int64_t trainers) {
    EstimateRequest job = search.job;
    job.training = &training;
    job.trainers = trainers;
    job.per_node = trainers == search.job.trainers ? job.per_node : std::min(search.gpus_of_node, trainers);
    const Result<Estimate> estimate = estimate_memory(job);
    const Result<IterationTime> time = iteration_time({.job = job});
    if (estimate && time && estimate->peak.upper_bound <= search.capacity &&
        estimate->host.total() * job.per_node <= search.node_memory) {
      gpu_seconds = std::min(gpu_seconds, time->seconds * static_cast<double>(trainers));
    }
  }
};

double cost_of(const std::optional<Remedy>& remedy) {
  return remedy ? remedy->gpu_seconds() : std::numeric_limits<double>::infinity();
}

// Of each of the four, all settings by themselves.
std::array<double, 4> costs_alone(const RemedySearch& search) {
  const crds::TrainingSpec& asked = *search.job.training;
  const std::int64_t requested = search.job.trainers;
  Cheapest checkpoints{search};
  using enum ActivationCheckpointing;
  for (const ActivationCheckpointing each : {kNone, kSelectiveHalf, kSelective, kFull}) {
    crds::TrainingSpec training = asked;
    training.activation_checkpointing = each;
    checkpoints.consider(training, requested);
  }
  Cheapest offload{search};
  const Result<OffloadAnswer> points =
      search_offload({.job = search.job, .capacity = search.capacity, .node_memory = search.node_memory});
  for (const OffloadPoint& point : points ? points->points : std::vector<OffloadPoint>()) {
    if (point.fits()) {
      offload.gpu_seconds =
          std::min(offload.gpu_seconds, point.seconds.value() * static_cast<double>(requested));
    }
  }
  Cheapest gpus{search};
  for (std::int64_t trainers = requested; trainers <= search.most_trainers; trainers += requested) {
    crds::TrainingSpec training = asked;
    if (asked.batch_size_per_trainer % (trainers / requested) == 0) {
      training.batch_size_per_trainer = asked.batch_size_per_trainer / (trainers / requested);
      training.gradient_accumulation = 1;
      gpus.consider(training, trainers);
    }
  }
  Cheapest parts{search};
  for (std::int64_t count = 1; count <= asked.batch_size_per_trainer; ++count) {
    crds::TrainingSpec training = asked;
    if (asked.batch_size_per_trainer % count == 0) {
      training.gradient_accumulation = count;
      parts.consider(training, requested);
    }
  }
  return {checkpoints.gpu_seconds, offload.gpu_seconds, gpus.gpu_seconds, parts.gpu_seconds};
}

TEST_F(RemedySearchTest, IsNeverDearerThanTheBestOfTheFourAlone) {
  const auto seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto one_of = [&](auto... values) {
    const std::array all = {values...};
    return all[random() % all.size()];
  };
  int fitting = 0;
  int cheaper = 0;
  constexpr int kJobs = plimsoll::testing::random_cases(100);
  for (int i = 0; i < kJobs; ++i) {
    using enum ParallelStrategy;
    crds::TransformerModel& transformer = *model_.transformer;
    transformer.layers = one_of(8, 16, 24);
    transformer.hidden = one_of(1024, 2048, 4096);
    transformer.ffn = 4 * transformer.hidden;
    training_.batch_size_per_trainer = one_of(4, 8, 16);
    training_.parallelism.strategy = one_of(kMegatron, kZeRO1, kZeRO3, kFSDP2);
    search_.job.trainers = search_.job.per_node = one_of(2, 4);
    search_.capacity = one_of(8_GiB, 16_GiB, 24_GiB, 40_GiB);
    search_.node_memory = one_of(32_GiB, 256_GiB);
    const RemedyAnswer found = answer();
    const std::array<double, 4> alone = costs_alone(search_);
    SCOPED_TRACE("job " + std::to_string(i));
    EXPECT_LE(cost_of(found.best), std::ranges::min(alone) * (1 + 1e-9));
    EXPECT_DOUBLE_EQ(cost_of(found.recomputation), alone[0]);
    EXPECT_DOUBLE_EQ(cost_of(found.more_gpus), alone[2]);
    EXPECT_DOUBLE_EQ(cost_of(found.smaller_micro_batches), alone[3]);
    EXPECT_DOUBLE_EQ(cost_of(found.offload), alone[1]);
    if (found.best) {
      ++fitting;
      EXPECT_LE(found.best->device, search_.capacity);
      cheaper += cost_of(found.best) < std::ranges::min(alone) * 0.999 ? 1 : 0;
    }
  }
  EXPECT_GT(fitting, kJobs / 5);
  EXPECT_GT(cheaper, kJobs / 20) << "several remedies together are worth more than one";
}

TEST_F(RemedySearchTest, WhatFitsIsLeftAsItIsUnlessSomethingIsCheaper) {
  search_.capacity = 80_GiB;
  model_.transformer->layers = 4;
  training_.batch_size_per_trainer = 1;
  search_.most_trainers = 2;
  const RemedyAnswer found = answer();
  EXPECT_TRUE(found.fits_as_requested);
  ASSERT_TRUE(found.best.has_value());
  EXPECT_EQ(found.best->setting, found.as_requested.setting);
}

TEST_F(RemedySearchTest, RecomputationThatIsNotNeededIsTakenAway) {
  search_.capacity = 80_GiB;
  model_.transformer->layers = 4;
  training_.batch_size_per_trainer = 1;
  training_.activation_checkpointing = ActivationCheckpointing::kFull;
  const RemedyAnswer found = answer();
  ASSERT_TRUE(found.best.has_value());
  EXPECT_EQ(found.best->setting.checkpointing, ActivationCheckpointing::kNone);
  EXPECT_LT(found.best->gpu_seconds(), found.as_requested.gpu_seconds());
}

TEST_F(RemedySearchTest, TheGlobalBatchStays) {
  search_.capacity = 12_GiB;
  const RemedyAnswer found = answer();
  ASSERT_TRUE(found.more_gpus || found.best);
  for (const std::optional<Remedy>& each : {found.more_gpus, found.best, found.smaller_micro_batches}) {
    if (each) {
      EXPECT_EQ(each->setting.batch_size * each->setting.trainers, 32);
      EXPECT_LE(each->setting.trainers, 16);
      EXPECT_EQ(each->setting.batch_size % each->setting.accumulation, 0);
    }
  }
}

// Of a batch with many divisors the smallest micro-batch is tried, too, and of few GPUs many times as many.
TEST_F(RemedySearchTest, NeitherTheSmallestMicroBatchNorManyGpusAreLeftOut) {
  training_.batch_size_per_trainer = 5040;
  training_.activation_checkpointing = ActivationCheckpointing::kFull;
  search_.most_trainers = 2;
  const RemedyAnswer found = answer();
  ASSERT_TRUE(found.smaller_micro_batches.has_value());
  EXPECT_LT(found.smaller_micro_batches->setting.micro_batch(), 300)
      << "the largest of sixteen sizes exceed the card";
  training_.batch_size_per_trainer = 128;
  search_.most_trainers = 256;
  const RemedyAnswer many = answer();
  ASSERT_TRUE(many.more_gpus.has_value());
  EXPECT_LE(many.more_gpus->setting.trainers, 256);
}

TEST_F(RemedySearchTest, NothingSufficesOnAnAbsurdlySmallCard) {
  search_.capacity = 1_GiB;
  const RemedyAnswer found = answer();
  EXPECT_FALSE(found.fits_as_requested);
  EXPECT_FALSE(found.best || found.recomputation || found.offload || found.more_gpus ||
               found.smaller_micro_batches);
}

TEST_F(RemedySearchTest, IsRefusedWhereTimesAreNotKnown) {
  gpu_.name = "unknown";
  gpu_.hbm_bandwidth = Bytes{};
  const Result<RemedyAnswer> found = search_remedies(search_);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kUnsupported) << found.error().message;
}

TEST_F(RemedySearchTest, ABudgetEndsIt) {
  Budget budget({.work = 100});
  search_.job.budget = &budget;
  const Result<RemedyAnswer> found = budget.run([&] { return search_remedies(search_); });
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace plimsoll::estimator
