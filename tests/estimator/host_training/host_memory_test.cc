#include "estimator/host_training/host_memory.h"

#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

TEST(HostMemory, AContainerHasRoomForItsProcessesBesideTheTensors) {
  EXPECT_EQ(container_memory(100_GiB, 1), Bytes::ceil(1.1 * static_cast<double>((100_GiB).count)) + 4_GiB);
  EXPECT_EQ(container_memory(Bytes{}, 8), 32_GiB);
}

TEST(HostMemory, TensorsThatFitAContainerAskForNoMore) {
  const Bytes tensors = tensors_within(1536_GiB, 8);
  EXPECT_GT(tensors, 1300_GiB);
  EXPECT_LE(container_memory(tensors, 8), 1536_GiB);
  EXPECT_LT(tensors_within(16_GiB, 8), Bytes{}) << "the processes alone take more";
}

Estimate of_model(Bytes parameters) {
  Estimate estimate;
  estimate.dense_parameters = parameters;
  return estimate;
}

// Nothing predicted it: the limit grew by a fifth a try, from 160 to 230 GiB.
TEST(HostDemand, WhatEachTrainerLoadsCountsForEach) {
  crds::TrainingSpec training;
  const Estimate estimate = of_model(25_GiB);
  EXPECT_EQ(host_demand(training, estimate, 8).total(), 32_GiB) << "Auto: what is loaded is not known";
  training.checkpoint_loading = crds::CheckpointLoading::kEveryRank;
  EXPECT_EQ(host_demand(training, estimate, 8).total(), 232_GiB);
  EXPECT_EQ(text_of(host_demand(training, estimate, 8)),
            "32.0 GiB of processes, 200 GiB of the checkpoint while it is loaded");
  training.checkpoint_loading = crds::CheckpointLoading::kFirstRank;
  EXPECT_EQ(host_demand(training, estimate, 8).total(), 57_GiB);
  training.checkpoint_loading = crds::CheckpointLoading::kNone;
  EXPECT_EQ(host_demand(training, estimate, 8).total(), 32_GiB);
}

TEST(HostDemand, TheCheckpointIsThereBeforeTheTensorsAre) {
  crds::TrainingSpec training;
  Estimate estimate = of_model(10_GiB);
  estimate.host.optimizer_state = 20_GiB;
  training.checkpoint_loading = crds::CheckpointLoading::kEveryRank;
  const HostDemand demand = host_demand(training, estimate, 2);
  EXPECT_EQ(demand.tensors, 44_GiB);
  EXPECT_EQ(demand.loading, 20_GiB);
  EXPECT_EQ(demand.total(), 52_GiB);
  EXPECT_EQ(text_of(demand), "8.00 GiB of processes, 44.0 GiB of tensors on the host");
}

TEST(HostDemand, WorkersHoldBatches) {
  crds::TrainingSpec training;
  training.data_loader_workers = 4;
  Estimate estimate;
  estimate.breakdown.inputs = 128_MiB;
  EXPECT_EQ(host_demand(training, estimate, 2).workers, (256_MiB + 256_MiB) * 8);
  EXPECT_EQ(to_json(host_demand(training, estimate, 2))["workers"].asInt64(), (4_GiB).count);
}

}  // namespace
}  // namespace plimsoll::estimator
