#include "cli/placed_tables.h"

#include <gtest/gtest.h>

#include "estimator/catalog/gpu_catalog.h"

namespace plimsoll::cli {
namespace {

struct TwoTables {
  crds::ModelSpec model;
  crds::TrainingSpec training;
  estimator::EstimateRequest request;
  estimator::GpuCatalog catalog = estimator::GpuCatalog::built_in();

  TwoTables() {
    model.graph.emplace();
    model.embeddings.emplace();
    model.embeddings->tables = {{.name = "user", .rows = 1 << 20, .dim = 64},
                                {.name = "item", .rows = 1 << 20, .dim = 64}};
    training.batch_size_per_trainer = 16;
    request.model = &model;
    request.training = &training;
    request.trainers = 2;
    request.per_node = 2;
  }
  Result<PlacedTables> placed(Bytes room) {
    AnswerBudget budget(kDefaultTimeout);
    return place_tables(request, *catalog.find("A100-80GB"), room, budget);
  }
};

TEST(PlacedTables, AGraphsTablesAreSharded) {
  TwoTables tables;
  const Result<PlacedTables> placed = tables.placed(1_GiB);
  ASSERT_TRUE(placed.ok()) << placed.error().message;
  EXPECT_EQ(placed->plan.ranks.size(), 2U);
  EXPECT_EQ(placed->embeddings, placed->plan.max_memory);
  EXPECT_TRUE(placed->why.constraint.empty());
}

TEST(PlacedTables, WhatDoesNotFitSaysWhatATrainerWouldHold) {
  TwoTables tables;
  const Result<PlacedTables> placed = tables.placed(128_MiB);
  ASSERT_TRUE(placed.ok()) << placed.error().message;
  EXPECT_FALSE(placed->why.constraint.empty());
  EXPECT_GT(placed->embeddings, 128_MiB);
}

}  // namespace
}  // namespace plimsoll::cli
