#include "estimator/estimate/spec_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "estimator/trace/shapes.h"

namespace plimsoll::estimator {
namespace {

using crds::ParallelStrategy;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct SpecJob {
  crds::ModelSpec model;
  crds::TrainingSpec training;
  EstimateRequest request;

  SpecJob() {
    training.batch_size_per_trainer = 4;
    training.optimizer = crds::Optimizer::kSGD;
    request.device = Device::kCpu;
  }
  const EstimateRequest& operator()() {
    request.model = &model;
    request.training = &training;
    return request;
  }
  SpecRun run() {
    Result<SpecRun> run = run_spec((*this)());
    EXPECT_TRUE(run.ok()) << (run ? "" : to_string(run.error()));
    return run ? *std::move(run) : SpecRun{.heaviest = Ledger(1), .allocated = {}, .dense_parameters = {}};
  }
  std::string refusal() {
    const Result<SpecRun> run = run_spec((*this)());
    EXPECT_FALSE(run.ok());
    return run ? "" : run.error().message;
  }
};

// Dense 8 -> Linear 16, ReLU -> Linear 1 -> BCE.
SpecJob two_layers() {
  SpecJob job;
  job.model.dlrm.emplace();
  job.model.dlrm->dense_features = 8;
  job.model.dlrm->bottom_mlp = {16};
  job.model.dlrm->top_mlp = {1};
  job.model.dlrm->interaction = crds::Interaction::kCat;
  return job;
}

SpecJob transformer(std::int64_t layers = 4) {
  SpecJob job;
  job.model.transformer.emplace();
  job.model.transformer->layers = layers;
  job.model.transformer->hidden = 64;
  job.model.transformer->heads = 4;
  job.model.transformer->ffn = 128;
  job.model.transformer->vocab = 100;
  job.model.transformer->sequence_length = 16;
  return job;
}

// estimate_test.cc derives these by hand: 644 bytes of parameters, 144 of inputs, and 900 at the first layer's
// backward.
TEST(SpecRun, OneTrainerByHand) {
  const SpecRun run = two_layers().run();
  EXPECT_EQ(run.heaviest.peak(), Bytes{644 + 144 + 900});
  EXPECT_THAT(run.allocated, ElementsAre(Bytes{644 + 144 + 900}));
  EXPECT_EQ(run.dense_parameters, 644_B);
  EXPECT_FALSE(run.beyond_any_machine);
  ASSERT_FALSE(run.largest_live.empty());
  EXPECT_LE(run.largest_live.size(), 10U);
  // The first weight, 8 x 16 floats, and its gradient.
  EXPECT_EQ(run.largest_live.front().bytes, Bytes{8 * 16 * 4});
  EXPECT_EQ(run.largest_live.front().kind, "parameter");
}

TEST(SpecRun, StagesOfAPipelineAreRanks) {
  SpecJob job = transformer();
  const Bytes whole = job.run().dense_parameters;
  job.request.trainers = 4;
  job.training.batch_size_per_trainer = 8;
  job.training.gradient_accumulation = 8;
  job.training.parallelism.pipeline = 4;
  const SpecRun stages = job.run();
  EXPECT_EQ(stages.allocated.size(), 4U);
  EXPECT_EQ(stages.heaviest.peak(), *std::max_element(stages.allocated.begin(), stages.allocated.end()));
  EXPECT_EQ(stages.dense_parameters, whole) << "of all stages";
}

TEST(SpecRun, OwnersUnderZeRO1AreRanksUpToALimit) {
  SpecJob job = two_layers();
  job.training.optimizer = crds::Optimizer::kMomentum;
  job.training.parallelism.strategy = ParallelStrategy::kZeRO1;
  job.request.trainers = 3;
  const SpecRun owners = job.run();
  EXPECT_EQ(owners.allocated.size(), 3U);
  EXPECT_EQ(owners.heaviest.peak(), *std::max_element(owners.allocated.begin(), owners.allocated.end()));
  job.request.trainers = 1000;
  EXPECT_EQ(job.run().allocated.size(), 1U) << "the first represents all";
}

TEST(SpecRun, PartsThatDoNotDivideTheTrainersAreRefused) {
  SpecJob job = transformer();
  job.request.trainers = 6;
  job.training.parallelism.tensor = 4;
  EXPECT_THAT(job.refusal(), HasSubstr("multiple of parallelism.tensor x pipeline x context, 4, is 6"));
  job.training.parallelism.tensor = 1;
  job.training.parallelism.expert = 4;
  EXPECT_THAT(job.refusal(), HasSubstr("training.parallelism.expert is 4"));
  job.training.parallelism.expert = 1;
  job.training.parallelism.pipeline = 6;
  EXPECT_THAT(job.refusal(), HasSubstr("the model has 4 layers"));
  job.training.parallelism.pipeline = 4097;
  EXPECT_THAT(job.refusal(), HasSubstr("training.parallelism.pipeline must be from 1 to 4096"));
  job.training.parallelism.pipeline = 1;
  job.training.gradient_accumulation = 3;
  EXPECT_THAT(job.refusal(), HasSubstr("training.gradientAccumulation is 3"));
  job.training.parallelism.pipeline = 2;
  job.training.parallelism.pipeline_chunks = 2;
  job.training.gradient_accumulation = 1;
  EXPECT_THAT(job.refusal(), HasSubstr("multiple of its 2 stages"));
}

TEST(SpecRun, ADlrmIsNotSplit) {
  SpecJob job = two_layers();
  job.request.trainers = 2;
  job.training.parallelism.tensor = 2;
  EXPECT_THAT(job.refusal(), HasSubstr("the only parallelism of a dlrm model"));
}

TEST(SpecRun, AnOptimizerThatPyTorchLacksIsRefused) {
  SpecJob job = two_layers();
  job.training.optimizer = crds::Optimizer::kLAMB;
  job.training.optimizer_implementation = crds::OptimizerImplementation::kFused;
  const Result<SpecRun> run = run_spec(job());
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().code, ErrorCode::kUnsupported);
}

// Two layers of 2^20 columns: an activation of 2^32 samples has 2^54 bytes, and there are several.
TEST(SpecRun, MemoryBeyondAnyMachineIsMarked) {
  SpecJob job = two_layers();
  job.model.dlrm->bottom_mlp = {1 << 20, 1 << 20};
  job.training.batch_size_per_trainer = std::int64_t{1} << 32;
  EXPECT_TRUE(job.run().beyond_any_machine);
}

TEST(TrainersThatMatter, ReplicasOfTheWholeModelAreAlike) {
  SpecJob job = transformer();
  job.request.trainers = 64;
  const auto matter = [&] { return trainers_that_matter(job()); };
  EXPECT_EQ(matter(), 2);
  job.training.parallelism.strategy = ParallelStrategy::kDDP;
  EXPECT_EQ(matter(), 2);
  job.training.parallelism.tensor = 2;
  EXPECT_EQ(matter(), 64);
  job.training.parallelism.tensor = 1;
  job.training.parallelism.strategy = ParallelStrategy::kFSDP;
  EXPECT_EQ(matter(), 64);
  job.request.trainers = 1;
  EXPECT_EQ(matter(), 1);
}

TEST(TrainersThatMatter, AnEqualNumberHasAnEqualRun) {
  SpecJob job = transformer();
  job.request.trainers = 2;
  const SpecRun two = job.run();
  job.request.trainers = 64;
  const SpecRun many = job.run();
  EXPECT_EQ(two.heaviest.peak_moment().parts, many.heaviest.peak_moment().parts);
  EXPECT_EQ(two.heaviest.events().size(), many.heaviest.events().size());
}

TEST(RecordWhole, HasEveryParameterOnce) {
  for (SpecJob job : {two_layers(), transformer()}) {
    const Result<Recording> recording = record_whole(job(), 4);
    ASSERT_TRUE(recording.ok()) << to_string(recording.error());
    const Result<TraceShapes> shapes = TraceShapes::at(recording->trace, 4);
    ASSERT_TRUE(shapes.ok());
    EXPECT_EQ(parameter_bytes(recording->trace, *shapes), job.run().dense_parameters);
  }
}

}  // namespace
}  // namespace plimsoll::estimator
