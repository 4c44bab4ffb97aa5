#include "estimator/estimate/floor.h"

#include <gtest/gtest.h>

#include <random>

#include "estimator/estimate/margins.h"
#include "estimator/estimate/peak.h"
#include "estimator/estimate/spec_run.h"
#include "tests/estimator/dice.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::estimator {
namespace {

using crds::ParallelStrategy;

// A small decoder whose replicas hold it as the strategy says.
struct Job {
  crds::ModelSpec model;
  crds::TrainingSpec training;
  EstimateRequest request;

  explicit Job(ParallelStrategy strategy) {
    crds::TransformerModel& sizes = model.transformer.emplace();
    sizes.layers = 3;
    sizes.hidden = 512;
    sizes.heads = 8;
    sizes.ffn = 2048;
    sizes.vocab = 1000;
    sizes.sequence_length = 128;
    training.batch_size_per_trainer = 2;
    training.optimizer = crds::Optimizer::kAdamW;
    training.parallelism.strategy = strategy;
  }
  SpecRun on(std::int64_t trainers) {
    request.model = &model;
    request.training = &training;
    request.trainers = trainers;
    Result<SpecRun> run = run_spec(request);
    EXPECT_TRUE(run.ok());
    return *std::move(run);
  }
  MemoryFloor floor_of(std::int64_t most) {
    request.without_padding = gathers(training.parallelism.strategy);
    MemoryFloor floor = on(most).floor;
    request.without_padding = false;
    return floor;
  }
  // The peak with its margins, which any estimate contains.
  Bytes takes_on(std::int64_t trainers) {
    const SpecRun run = on(trainers);
    const Breakdown parts = breakdown_of(run.heaviest.peak_moment());
    return run.heaviest.peak() + total_of(margins_of(request, run.heaviest, parts, {}));
  }
};

TEST(MemoryFloor, IsBelowThePeakForAnyNumberOfTrainersAndFallsWithIt) {
  for (std::size_t i = 0; i < crds::kNames<ParallelStrategy>.size(); ++i) {
    Job job(static_cast<ParallelStrategy>(i));
    const MemoryFloor floor = job.floor_of(64);
    Bytes last = Bytes::max();
    for (const std::int64_t trainers : {2, 3, 4, 7, 8, 24, 64, 100}) {
      const Bytes least = floor.at(trainers);
      EXPECT_GT(least, Bytes{});
      EXPECT_LE(least, job.takes_on(trainers)) << crds::kNames<ParallelStrategy>[i] << trainers;
      EXPECT_LE(least, last);
      last = least;
    }
  }
}

// Settings that change what replicas exchange, and sizes that their number does not divide.
TEST(MemoryFloor, IsBelowThePeakWhateverIsExchanged) {
  const std::uint32_t seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  testing::Dice dice(seed);
  for (int i = 0; i < 300; ++i) {
    const std::int64_t strategy =
        dice.below(static_cast<std::int64_t>(crds::kNames<ParallelStrategy>.size()));
    Job job(static_cast<ParallelStrategy>(strategy));
    crds::TransformerModel& sizes = *job.model.transformer;
    sizes.hidden = 8 * dice.one_of({24, 33, 64});
    sizes.ffn = dice.one_of({500, 1024});
    sizes.experts = dice.one_of({0, 0, 8});
    sizes.experts_per_token = sizes.experts > 0 ? 2 : 0;
    crds::TrainingSpec& training = job.training;
    training.optimizer = static_cast<crds::Optimizer>(dice.below(6));
    training.precision = static_cast<crds::Precision>(dice.below(5));
    training.activation_checkpointing = static_cast<crds::ActivationCheckpointing>(dice.below(2));
    training.gradient_accumulation = dice.one_of({1, 2});
    training.batch_size_per_trainer = training.gradient_accumulation * dice.one_of({1, 8});
    training.set_to_none = dice.below(4) > 0;
    crds::Parallelism& parallelism = training.parallelism;
    parallelism.expert = sizes.experts > 0 ? dice.one_of({1, 2}) : 1;
    parallelism.reshard_after_forward = dice.coin();
    if (gathers(parallelism.strategy) && parallelism.strategy != ParallelStrategy::kZeRO3) {
      parallelism.replicate = dice.one_of({1, 2});
    }
    if (dice.below(4) == 0) {
      parallelism.tensor = 2;
    }
    if (dice.below(4) == 0) {
      parallelism.pipeline = 2;
      sizes.layers = 4;
    }
    training.optimizer_in_backward = gathers(parallelism.strategy) && parallelism.pipeline == 1 &&
                                     training.gradient_accumulation == 1 && *training.set_to_none &&
                                     dice.below(4) == 0;
    const std::int64_t parts = parallelism.tensor * parallelism.pipeline;
    job.request.model = &job.model;
    job.request.training = &job.training;
    job.request.trainers = 48 * parts;
    if (!run_spec(job.request)) {
      continue;  // a combination that PyTorch does not have
    }
    const MemoryFloor floor = job.floor_of(48 * parts);
    for (const std::int64_t holders : {1, 2, 4, 6, 8, 20, 24, 36, 48}) {
      job.request.trainers = holders * parts;
      if (run_spec(job.request)) {
        EXPECT_LE(floor.at(holders), job.takes_on(holders * parts))
            << crds::kNames<ParallelStrategy>[static_cast<std::size_t>(strategy)] << " job " << i << " on "
            << holders;
      }
    }
  }
}

// Nothing but padding and the shards of gradients is missing: a search excluded 497 numbers one by one by their runs,
// whose floors were below the GPU's memory by what FSDP gathers.
TEST(MemoryFloor, KnowsWhatIsGathered) {
  Job job(ParallelStrategy::kFSDP2);
  job.model.transformer->hidden = 2048;
  const MemoryFloor floor = job.floor_of(64);
  for (const std::int64_t trainers : {8, 32, 64}) {
    EXPECT_GT(floor.at(trainers), Bytes::ceil(0.97 * static_cast<double>(job.takes_on(trainers).count)));
  }
}

// The margin of 11.5 % on gradients, activations and temporaries is part of any estimate.
TEST(MemoryFloor, HasTheMarginWhereThereAreNoBuckets) {
  Job job(ParallelStrategy::kFSDP2);
  job.training.batch_size_per_trainer = 256;  // activations are nearly all
  const SpecRun run = job.on(64);
  EXPECT_GT(job.floor_of(64).at(64), Bytes::ceil(1.02 * static_cast<double>(run.heaviest.peak().count)));
}

TEST(MemoryFloor, KnowsTheShards) {
  Job job(ParallelStrategy::kFSDP2);
  const MemoryFloor floor = job.floor_of(64);
  EXPECT_GT(floor.at(2) - floor.at(4), 10_MiB);  // 14 M parameters with two moments: 160 MiB
}

// A single trainer's run is not like one of several: it has no buckets, and gathers nothing.
TEST(MemoryFloor, ASingleTrainerSaysNothingOfSeveral) {
  Job job(ParallelStrategy::kFSDP2);
  EXPECT_GT(job.floor_of(64).at(1), 100_MiB);  // it has all parameters
  EXPECT_LE(job.floor_of(64).at(1), job.takes_on(1));
  Job replicated(ParallelStrategy::kDDP);
  EXPECT_EQ(replicated.floor_of(64).at(1), Bytes{});
  EXPECT_EQ(job.floor_of(1).at(8), Bytes{});
  EXPECT_EQ(MemoryFloor().at(8), Bytes{});
}

}  // namespace
}  // namespace plimsoll::estimator
