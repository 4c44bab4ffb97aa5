#include "estimator/speed/iteration_time.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/estimator/llama_job.h"

namespace plimsoll::estimator {
namespace {

class IterationTimeTest : public ::testing::Test {
 protected:
  Result<IterationTime> time(std::int64_t trainers, const char* card = "A100-80GB") {
    SpeedRequest request;
    request.job = {.model = &job_.spec.model,
                   .training = &job_.spec.training,
                   .gpu = catalog_.find(card),
                   .trainers = trainers};
    return iteration_time(request);
  }
  static double part(const IterationTime& time, const std::string& name) {
    const auto found = std::find_if(time.parts.begin(), time.parts.end(),
                                    [&](const TimePart& each) { return each.name == name; });
    return found == time.parts.end() ? 0 : found->seconds;
  }

  GpuCatalog catalog_ = GpuCatalog::built_in();
  crds::TrainingJob job_ = testing::llama_job(testing::kLlama8B, 4);
};

TEST_F(IterationTimeTest, PartsSumToTheIteration) {
  const Result<IterationTime> of = time(32);
  ASSERT_TRUE(of.ok()) << to_string(of.error());
  double sum = 0;
  for (const TimePart& each : of->parts) {
    EXPECT_GT(each.seconds, 0) << each.name;
    sum += each.seconds;
  }
  EXPECT_NEAR(sum, of->seconds, 1e-12);
  EXPECT_NEAR(of->samples_per_second, 32 * 4 / of->seconds, 1e-9);
  EXPECT_GT(part(*of, "recomputation"), 0);
}

TEST_F(IterationTimeTest, ANewerCardIsFaster) {
  EXPECT_LT(time(32, "H100-80GB")->seconds, time(32)->seconds);
}

TEST_F(IterationTimeTest, GradientsIn16BitsAreExchangedFaster) {
  job_.spec.training.parallelism.strategy = crds::ParallelStrategy::kMegatron;
  SpeedRequest request;
  request.job = {.model = &job_.spec.model,
                 .training = &job_.spec.training,
                 .gpu = catalog_.find("A100-80GB"),
                 .trainers = 32};
  const double full = part(*iteration_time(request), "data parallel exchange");
  request.half_gradients = true;
  EXPECT_LT(part(*iteration_time(request), "data parallel exchange"), 0.8 * full);
}

TEST_F(IterationTimeTest, MicroBatchesShortenTheBubble) {
  job_.spec.training.parallelism.strategy = crds::ParallelStrategy::kDDP;
  job_.spec.training.parallelism.pipeline = 4;
  job_.spec.training.batch_size_per_trainer = 8;
  job_.spec.training.gradient_accumulation = 4;
  const double few = part(*time(32), "pipeline bubble");
  job_.spec.training.gradient_accumulation = 8;
  const double many = part(*time(32), "pipeline bubble");
  EXPECT_GT(few, many);
  job_.spec.training.parallelism.pipeline_chunks = 2;
  EXPECT_NEAR(part(*time(32), "pipeline bubble"), many / 2, many * 0.01);
}

TEST_F(IterationTimeTest, TensorParallelExchangesAreExposed) {
  job_.spec.training.parallelism.tensor = 8;
  EXPECT_GT(part(*time(32), "tensor parallel exchange"), 0);
}

TEST_F(IterationTimeTest, AHalfOfAModelWithTablesIsNotItsTime) {
  crds::ModelSpec model;
  model.dlrm.emplace();
  model.dlrm->dense_features = 13;
  model.dlrm->bottom_mlp = {64, 16};
  model.dlrm->top_mlp = {64, 1};
  model.dlrm->tables.push_back({.name = "t", .rows = 100, .dim = 16});
  crds::TrainingSpec training;
  training.batch_size_per_trainer = 1024;
  SpeedRequest request;
  request.job = {.model = &model, .training = &training, .gpu = catalog_.find("A100-80GB"), .trainers = 8};
  EXPECT_FALSE(iteration_time(request).ok());
  request.embedding_seconds = 0.5;
  const Result<IterationTime> of = iteration_time(request);
  ASSERT_TRUE(of.ok()) << to_string(of.error());
  EXPECT_DOUBLE_EQ(part(*of, "embeddings"), 0.5);
}

TEST_F(IterationTimeTest, SizesBelowOneAreRefused) {
  job_.spec.training.parallelism.pipeline_chunks = 0;
  const Result<IterationTime> chunks = time(32);
  ASSERT_FALSE(chunks.ok());
  EXPECT_EQ(chunks.error().code, ErrorCode::kInvalid);
  EXPECT_NE(chunks.error().message.find("training.parallelism.pipelineChunks"), std::string::npos);
  job_.spec.training.parallelism.pipeline_chunks = 1;
  job_.spec.training.parallelism.tensor = -2;
  job_.spec.training.parallelism.pipeline = -2;
  EXPECT_FALSE(time(32).ok());
}

TEST_F(IterationTimeTest, LinksThatAreNotKnownAreSaid) {
  GpuModel card = *catalog_.find("A100-80GB");
  card.inter_node_bandwidth = Bytes{0};
  SpeedRequest request;
  request.job = {.model = &job_.spec.model, .training = &job_.spec.training, .gpu = &card, .trainers = 16};
  const Result<IterationTime> of = iteration_time(request);
  ASSERT_FALSE(of.ok());
  EXPECT_EQ(of.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(of.error().message.find("networkGbps"), std::string::npos);
}

TEST_F(IterationTimeTest, WhatIsNotKnownIsSaid) {
  for (const auto& [card, trainers] : {std::pair{"K80", 32}, std::pair{"V100-32GB", 32}}) {
    const Result<IterationTime> of = time(trainers, card);
    ASSERT_FALSE(of.ok());
    EXPECT_EQ(of.error().code, ErrorCode::kUnsupported) << card;
  }
  job_.spec.training.parallelism.tensor = 8;
  const Result<IterationTime> uneven = time(12);
  ASSERT_FALSE(uneven.ok());
  EXPECT_EQ(uneven.error().code, ErrorCode::kInvalid);
  EXPECT_NE(uneven.error().message.find("trainers must be a multiple"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::estimator
