// Published throughput of DLRMs under torchrec on 8 A100 (facebookresearch/dlrm 090956ee, torchrec_dlrm/README.MD, MIT): Criteo 1 TB, at
// most 40 million rows a table, one lookup of each. The time is the sharder's stages and the dense part's operators.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "estimator/catalog/gpu_catalog.h"
#include "estimator/sharder/shard.h"
#include "estimator/speed/iteration_time.h"

namespace plimsoll::estimator {
namespace {

// mlcommons/training, recommendation_v2/torchrec_dlrm/README.MD: --num_embeddings_per_feature.
constexpr std::int64_t kRows[] = {40000000, 39060,    17295,    7424,     20265,  3,     7122, 1543, 63,
                                  40000000, 3067956,  405282,   10,       2209,   11938, 155,  4,    976,
                                  14,       40000000, 40000000, 40000000, 590152, 12973, 108,  36};

crds::ModelSpec dlrm() {
  crds::ModelSpec model;
  crds::DlrmModel& sizes = model.dlrm.emplace();
  sizes.bottom_mlp = {512, 256, 128};
  sizes.top_mlp = {1024, 1024, 512, 256, 1};
  for (const std::int64_t rows : kRows) {
    sizes.tables.push_back({.name = "t" + std::to_string(rows), .rows = rows, .dim = 128});
  }
  return model;
}

double seconds_of(const crds::ModelSpec& model, std::int64_t batch, crds::Optimizer optimizer) {
  crds::TrainingSpec training;
  training.batch_size_per_trainer = batch;
  training.optimizer = training.embedding_optimizer = optimizer;
  constexpr std::int64_t kTrainers = 8;
  const GpuModel card = *GpuCatalog::built_in().find("A100-40GB");
  ShardRequest shards;
  shards.tables = expand_tables(model.dlrm->tables);
  shards.topology = {.trainers = kTrainers,
                     .per_node = kTrainers,
                     .intra_node_bandwidth = card.intra_node_bandwidth,
                     .hbm_bandwidth = card.hbm_bandwidth};
  shards.batch_size = training.batch_size_per_trainer;
  shards.budget = 30_GiB;
  shards.optimizer = training.embedding_optimizer;
  shards.cost = CostMethod::kStages;
  const Result<Plan> plan = shard(shards);
  EXPECT_TRUE(plan.ok()) << (plan ? "" : to_string(plan.error()));
  SpeedRequest request;
  request.job = {
      .model = &model, .training = &training, .gpu = &card, .trainers = kTrainers, .per_node = kTrainers};
  request.embedding_seconds = plan ? plan->max_milliseconds / 1000 : 0;
  const Result<IterationTime> time = iteration_time(request);
  EXPECT_TRUE(time.ok()) << (time ? "" : to_string(time.error()));
  return time ? time->seconds : 0;
}

TEST(PublishedDlrm, LargeBatches) {
  crds::ModelSpec model = dlrm();
  model.dlrm->interaction = crds::Interaction::kDCN;
  model.dlrm->cross_layers = 3;
  model.dlrm->cross_rank = 512;
  constexpr double kPublished = 0.110;
  const double predicted = seconds_of(model, 16384, crds::Optimizer::kAdagrad);
  std::printf("DCN-v2, 16,384 samples a GPU: %.1f ms, published 110 ms\n", 1e3 * predicted);
  EXPECT_NEAR(predicted, kPublished, 0.05 * kPublished);
}

// About 100 iterations a second: the CPU distributes the indices of 26 tables and launches the lookups, which is not modelled.
TEST(PublishedDlrm, SmallBatchesTakeLongerThanTheirKernels) {
  constexpr double kPublished = 0.010;
  const double predicted = seconds_of(dlrm(), 256, crds::Optimizer::kSGD);
  std::printf("DLRM, 256 samples a GPU: %.1f ms, published 10 ms\n", 1e3 * predicted);
  EXPECT_LT(predicted, kPublished);
  EXPECT_GT(predicted, kPublished / 10);
}

}  // namespace
}  // namespace plimsoll::estimator
