#include "estimator/estimate/spec_parts.h"

#include <gtest/gtest.h>

#include "estimator/estimate/spec_run.h"

namespace plimsoll::estimator {
namespace {

using crds::ParallelStrategy;

struct Decoder {
  crds::ModelSpec model;
  crds::TrainingSpec training;
  TransformerSpec spec;

  Decoder() {
    crds::TransformerModel& sizes = model.transformer.emplace();
    sizes.layers = 4;
    sizes.hidden = 64;
    sizes.heads = 4;
    sizes.ffn = 128;
    sizes.vocab = 1000;
    sizes.sequence_length = 32;
    training.batch_size_per_trainer = 2;
    training.precision = crds::Precision::kBF16Mixed;
    training.parallelism.strategy = ParallelStrategy::kFSDP2;
    spec = *transformer_spec(sizes);
  }
  Result<SpecRun> run(std::int64_t trainers, KnownSpecParts* known) const {
    return run_spec({.model = &model, .training = &training, .trainers = trainers}, &spec, known);
  }
};

void expect_equal(const SpecRun& a, const SpecRun& b) {
  EXPECT_EQ(a.allocated, b.allocated);
  EXPECT_EQ(a.dense_parameters, b.dense_parameters);
  EXPECT_EQ(a.warnings, b.warnings);
  ASSERT_EQ(a.heaviest.events().size(), b.heaviest.events().size());
  for (std::size_t i = 0; i < a.heaviest.events().size(); ++i) {
    ASSERT_EQ(a.heaviest.events()[i].kind, b.heaviest.events()[i].kind);
    ASSERT_EQ(a.heaviest.events()[i].block, b.heaviest.events()[i].block);
  }
  ASSERT_EQ(a.heaviest.blocks().size(), b.heaviest.blocks().size());
  for (std::size_t i = 0; i < a.heaviest.blocks().size(); ++i) {
    ASSERT_EQ(a.heaviest.blocks()[i].bytes, b.heaviest.blocks()[i].bytes);
    ASSERT_EQ(a.heaviest.blocks()[i].bytes_of_one, b.heaviest.blocks()[i].bytes_of_one);
  }
  EXPECT_EQ(a.heaviest.peak_phase(), b.heaviest.peak_phase());
  for (const Section section :
       {Section::kForward, Section::kEarlyBackward, Section::kLateBackward, Section::kOptimizerStep}) {
    EXPECT_EQ(a.heaviest.peak_of(section).live, b.heaviest.peak_of(section).live);
    EXPECT_EQ(a.heaviest.peak_of(section).parts, b.heaviest.peak_of(section).parts);
    EXPECT_EQ(a.heaviest.peak_of(section).events, b.heaviest.peak_of(section).events);
  }
  EXPECT_EQ(a.host.total(), b.host.total());
  ASSERT_EQ(a.largest_live.size(), b.largest_live.size());
  for (std::size_t i = 0; i < a.largest_live.size(); ++i) {
    EXPECT_EQ(a.largest_live[i].name, b.largest_live[i].name);
  }
}

// Numbers of trainers, batches, strategies and stages one after the other: what is kept of one run says nothing wrong of
// the next.
TEST(SpecParts, KeptOnesGiveTheRunsOfNewOnes) {
  Decoder job;
  KnownSpecParts known;
  for (const std::int64_t pipeline : {1, 2}) {
    for (const ParallelStrategy strategy :
         {ParallelStrategy::kFSDP2, ParallelStrategy::kAuto, ParallelStrategy::kZeRO1}) {
      for (const std::int64_t batch : {2, 8, 4, 2, 6}) {
        for (const std::int64_t trainers : {2, 4, 10}) {
          job.training.parallelism.strategy = strategy;
          job.training.parallelism.pipeline = pipeline;
          job.training.gradient_accumulation = pipeline;
          job.training.batch_size_per_trainer = batch;
          const Result<SpecRun> kept = job.run(trainers, &known);
          const Result<SpecRun> fresh = job.run(trainers, nullptr);
          ASSERT_EQ(kept.ok(), fresh.ok());
          if (kept) {
            expect_equal(*kept, *fresh);
          }
        }
      }
    }
  }
}

// A search tries one number of trainers after the other. From the fourth on, blocks of a recorded run are resized where
// trainers gather what they share. Some of these optimizers keep other blocks for small shards.
TEST(SpecParts, ASearchGivesTheRunsOfEachNumber) {
  for (const ParallelStrategy strategy :
       {ParallelStrategy::kFSDP, ParallelStrategy::kFSDP2, ParallelStrategy::kZeRO3}) {
    for (const crds::Optimizer optimizer : {crds::Optimizer::kAdamW, crds::Optimizer::kAdam8bit,
                                            crds::Optimizer::kAdafactor, crds::Optimizer::kMuon}) {
      for (const std::int64_t accumulation : {1, 2}) {
        for (const bool set_to_none : {true, false}) {
          Decoder job;
          job.training.parallelism.strategy = strategy;
          job.training.optimizer = optimizer;
          job.training.gradient_accumulation = accumulation;
          job.training.set_to_none = set_to_none;
          KnownSpecParts known;
          for (const std::int64_t trainers : {8, 1, 2, 3, 4, 5, 16, 60, 64, 7, 512, 2}) {
            const Result<SpecRun> kept = job.run(trainers, &known);
            const Result<SpecRun> fresh = job.run(trainers, nullptr);
            ASSERT_EQ(kept.ok(), fresh.ok());
            if (kept) {
              SCOPED_TRACE(std::to_string(trainers) + " trainers, " + crds::name_of(strategy) + ", " +
                           crds::name_of(optimizer));
              expect_equal(*kept, *fresh);
            }
          }
        }
      }
    }
  }
}

// The units of work tell a resized run from a whole one.
TEST(SpecParts, TheFourthNumberOfASearchIsNotRunAgain) {
  const Decoder job;
  KnownSpecParts known;
  Budget budget;
  const auto work_of = [&](std::int64_t trainers) {
    const std::uint64_t before = budget.work_done();
    EXPECT_TRUE(
        run_spec({.model = &job.model, .training = &job.training, .trainers = trainers, .budget = &budget},
                 &job.spec, &known));
    return budget.work_done() - before;
  };
  work_of(8);
  const std::uint64_t second = work_of(16);
  work_of(24);
  EXPECT_LT(work_of(32), second);
}

TEST(SpecParts, AModelOfFewerLayersHasItsOwn) {
  const Decoder job;
  const RecordOptions options{.device = Device::kCuda, .batch = 2, .input_batch = 2};
  TransformerSpec fewer = job.spec;
  fewer.layers = 2;
  KnownSpecParts known;
  const SpecParts& whole = known.of({&job.model, job.training, &job.spec, options});
  EXPECT_NE(&known.of({&job.model, job.training, &fewer, options}), &whole);
  EXPECT_EQ(&known.of({&job.model, job.training, &job.spec, options}), &whole);
  EXPECT_GT(known.of({&job.model, job.training, &job.spec, options}).whole_model(job.training),
            known.of({&job.model, job.training, &fewer, options}).whole_model(job.training));
}

}  // namespace
}  // namespace plimsoll::estimator
