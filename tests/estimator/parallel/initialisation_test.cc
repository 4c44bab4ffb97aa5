#include <gtest/gtest.h>

#include "estimator/parallel/life_cycle.h"
#include "tests/estimator/replica_model.h"

namespace plimsoll::estimator {
namespace {

using crds::Initialisation;
using crds::ParallelStrategy;
using testing::Model;
using testing::model_of;
using testing::vector_of;

// Two units of 32 and 16 parameters and a root, in fp32, among 4 trainers.
Model three_units(ParallelStrategy strategy, std::int64_t root = 64) {
  Model model = model_of(strategy, 4, {vector_of(root), vector_of(32), vector_of(16)});
  model.parameters[1].unit = 0;
  model.parameters[2].unit = 1;
  return model;
}

struct Peaks {
  std::int64_t highest = 0;
  std::int64_t left = 0;
};

// Bytes of all blocks, at most and at the end.
Peaks peaks_of(Model& model, const Making& making) {
  model.life().initialise(making);
  return {.highest = model.ledger.most(), .left = model.ledger.live()};
}

TEST(Initialisation, FsdpMovesOneUnitAtATimeAndCopiesIt) {
  Model model = three_units(ParallelStrategy::kFSDP);
  const Peaks peaks = peaks_of(model, {.where = Initialisation::kCPU});
  EXPECT_EQ(peaks.left, (64 + 32 + 16) / 4 * 4);
  EXPECT_EQ(peaks.highest, peaks.left + 2 * 64 * 4) << "the root's parameters and its flat parameter";
}

TEST(Initialisation, FsdpHasTheSameUnitsOnTheMetaDevice) {
  Model meta = three_units(ParallelStrategy::kFSDP);
  Model cpu = three_units(ParallelStrategy::kFSDP);
  EXPECT_EQ(peaks_of(meta, {.where = Initialisation::kMeta}).highest,
            peaks_of(cpu, {.where = Initialisation::kCPU}).highest);
}

TEST(Initialisation, AModelOnTheGpuIsWholeUntilItsFirstUnitIsSharded) {
  Model fsdp = three_units(ParallelStrategy::kFSDP, 8);
  const Peaks flat = peaks_of(fsdp, {.where = Initialisation::kGPU});
  EXPECT_EQ(flat.highest, (8 + 32 + 16) * 4 + 32 * 4 + 32 / 4 * 4);
  EXPECT_EQ(flat.left, (8 + 32 + 16) / 4 * 4);
  Model fsdp2 = three_units(ParallelStrategy::kFSDP2, 8);
  const Peaks rows = peaks_of(fsdp2, {.where = Initialisation::kGPU});
  EXPECT_EQ(rows.highest, (8 + 32 + 16) * 4 + 32 / 4 * 4);
  EXPECT_EQ(rows.left, flat.left);
}

TEST(Initialisation, Fsdp2TakesAUnitFromTheCpuAndNothingButShardsFromTheMetaDevice) {
  Model cpu = three_units(ParallelStrategy::kFSDP2);
  const Peaks moved = peaks_of(cpu, {.where = Initialisation::kCPU});
  EXPECT_EQ(moved.highest, moved.left + 64 * 4);
  Model meta = three_units(ParallelStrategy::kFSDP2);
  const Peaks made = peaks_of(meta, {.where = Initialisation::kMeta});
  EXPECT_EQ(made.highest, made.left);
  EXPECT_EQ(made.left, (64 + 32 + 16) / 4 * 4);
}

// Weights in half precision are made in fp32, which the optimizer updates.
TEST(Initialisation, ModelsAreMadeInThePrecisionOfTheOptimizer) {
  Model model = three_units(ParallelStrategy::kFSDP2);
  for (ReplicaParameter& parameter : model.parameters) {
    parameter.width = 2;
  }
  EXPECT_EQ(peaks_of(model, {.where = Initialisation::kGPU}).highest, (64 + 32 + 16) * 4 + 32 / 4 * 4);
}

TEST(Initialisation, WhatIsDroppedBeforeShardingIsOnTheGpuAlone) {
  const Bytes head{10'000};
  Model gpu = three_units(ParallelStrategy::kFSDP2);
  EXPECT_EQ(peaks_of(gpu, {.where = Initialisation::kGPU, .dropped = head}).highest,
            (64 + 32 + 16) * 4 + head.count);
  Model cpu = three_units(ParallelStrategy::kFSDP2);
  EXPECT_LT(peaks_of(cpu, {.where = Initialisation::kCPU, .dropped = head}).highest, head.count);
}

TEST(Initialisation, OffloadedShardsDoNotStay) {
  for (const ParallelStrategy strategy :
       {ParallelStrategy::kFSDP, ParallelStrategy::kFSDP2, ParallelStrategy::kZeRO3}) {
    Model model = three_units(strategy);
    model.replication.offload = crds::Offload::kParameters;
    EXPECT_EQ(peaks_of(model, {.where = Initialisation::kCPU}).left, 0) << crds::name_of(strategy);
  }
}

// comm.cpp: two buckets of 250 MiB are on their way, before the flat parameter is made.
TEST(Initialisation, FsdpSendsAUnitInBuckets) {
  const std::int64_t elements = (100_MiB).count / 4;
  Model model = model_of(ParallelStrategy::kFSDP, 64, std::vector(9, vector_of(elements)));
  const std::int64_t shards = 9 * elements / 64 * 4;
  EXPECT_EQ(peaks_of(model, {.where = Initialisation::kCPU, .is_sent = true}).highest,
            (2 * 900_MiB).count + shards)
      << "the flat parameter is larger than the buckets";
  EXPECT_EQ(model.ledger.most(Part::kTemporaries), (900_MiB).count);
  Model alone = model_of(ParallelStrategy::kFSDP, 64, {vector_of(elements)});
  alone.life().initialise({.where = Initialisation::kCPU, .is_sent = true});
  EXPECT_EQ(alone.ledger.most(Part::kTemporaries), (100_MiB).count);
}

// _state_dict_utils.py: one whole tensor after the other, beside the shards.
TEST(Initialisation, Fsdp2ReceivesOneTensorAtATime) {
  Model model = three_units(ParallelStrategy::kFSDP2);
  const Peaks peaks = peaks_of(model, {.where = Initialisation::kCPU, .is_sent = true});
  EXPECT_EQ(peaks.highest, peaks.left + 64 * 4);
  EXPECT_EQ(peaks.left, (64 + 32 + 16) / 4 * 4);
}

// engine.py: module.half() and module.to(device) of the whole model; partition_parameters.py: one parameter after the other.
TEST(Initialisation, DeepSpeedCastsTheModelAndPartitionsItsParameters) {
  const auto half = [] {
    Model model = three_units(ParallelStrategy::kZeRO3);
    for (ReplicaParameter& parameter : model.parameters) {
      parameter.width = 2;
    }
    return model;
  };
  Model gpu = half();
  const Peaks whole = peaks_of(gpu, {.where = Initialisation::kGPU});
  EXPECT_EQ(whole.highest, (64 + 32 + 16) * 4 + 64 * 2);
  EXPECT_EQ(whole.left, (64 + 32 + 16) / 4 * 2);
  Model cpu = half();
  const Peaks moved = peaks_of(cpu, {.where = Initialisation::kCPU});
  EXPECT_EQ(moved.highest, (64 + 32 + 16) * 2 + 64 / 4 * 2) << "module.to(device)";
  EXPECT_EQ(moved.left, whole.left);
  Model init = half();
  const Peaks by_parameter = peaks_of(init, {.where = Initialisation::kMeta});
  EXPECT_EQ(by_parameter.highest, 64 * 2 + 64 / 4 * 2);
  EXPECT_EQ(by_parameter.left, whole.left);
}

TEST(Initialisation, ZeRO2HasTheWholeModelInHalfPrecisionUnlessItIsMadeOnTheGpu) {
  for (const Initialisation where : {Initialisation::kCPU, Initialisation::kGPU}) {
    Model model = three_units(ParallelStrategy::kZeRO2);
    for (ReplicaParameter& parameter : model.parameters) {
      parameter.width = 2;
    }
    const Peaks peaks = peaks_of(model, {.where = where});
    EXPECT_EQ(peaks.left, (64 + 32 + 16) * 2);
    EXPECT_EQ(peaks.highest,
              where == Initialisation::kGPU ? (64 + 32 + 16) * 4 + 64 * 2 : (64 + 32 + 16) * 2);
  }
}

}  // namespace
}  // namespace plimsoll::estimator
