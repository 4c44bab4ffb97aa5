#include "estimator/estimate/graph_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "estimator/estimate/estimate.h"
#include "tests/estimator/graph_files.h"

namespace plimsoll::estimator {
namespace {

using testing::graph_file;
using ::testing::HasSubstr;

// A Linear(3, 2) over the pooled rows of tables with three columns in all.
struct PooledJob {
  TraceFile graph = graph_file("pooled.json");
  crds::ModelSpec model;
  crds::TrainingSpec training;
  EstimateRequest request;

  PooledJob() {
    model.graph = crds::GraphReference{};
    model.embeddings.emplace();
    model.embeddings->tables = {{.name = "user", .rows = 1000, .dim = 1, .pooling_factor = 2.5},
                                {.name = "item", .count = 2, .rows = 500, .dim = 1}};
    training.batch_size_per_trainer = 100;
    request.device = Device::kCpu;
  }
  Result<Estimate> result() {
    request.model = &model;
    request.training = &training;
    request.graph = &graph;
    return estimate_memory(request);
  }
};

TEST(GraphTables, AGraphTogetherWithEmbeddingTablesIsEstimated) {
  PooledJob job;
  const Result<Estimate> dense = job.result();
  ASSERT_TRUE(dense.ok()) << dense.error().message;
  EXPECT_EQ(dense->breakdown.embeddings, Bytes{0}) << "reserved memory, which the sharder must leave free";
  EXPECT_EQ(dense->breakdown.inputs, Bytes{8 * 8 * 100}) << "2.5 + 1 + 1 indices, rounded up, and 3 offsets";
  job.request.embedding_bytes = 1_MiB;
  const Result<Estimate> whole = job.result();
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->peak.allocated, dense->peak.allocated + 1_MiB);
  EXPECT_EQ(whole->breakdown.total(), whole->peak.upper_bound);
}

TEST(GraphTables, ThreeBatchesAreInFlightOnCuda) {
  PooledJob job;
  job.request.device = Device::kCuda;
  const Result<Estimate> estimate = job.result();
  ASSERT_TRUE(estimate.ok()) << estimate.error().message;
  EXPECT_EQ(estimate->breakdown.inputs, Bytes{3 * 6656}) << "each of 6400 bytes, in blocks of 512";
}

TEST(GraphTables, WidthsThatDifferAreAnErrorWithBothNumbers) {
  PooledJob job;
  job.model.embeddings->tables.front().dim = 64;
  const Result<Estimate> estimate = job.result();
  ASSERT_FALSE(estimate.ok());
  EXPECT_EQ(estimate.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(estimate.error().message, HasSubstr("have 3 columns and those of the tables 66"));
}

TEST(GraphTables, ASequenceIsNotPooled) {
  PooledJob job;
  job.model.embeddings->tables.front().sequence_length = 10;
  const Result<Estimate> estimate = job.result();
  ASSERT_FALSE(estimate.ok());
  EXPECT_THAT(estimate.error().message,
              HasSubstr("pooled embeddings have 3 columns and those of the tables 2"));
}

TEST(GraphTables, AGraphThatLooksUpNeedsTables) {
  PooledJob job;
  job.model.embeddings.reset();
  const Result<Estimate> estimate = job.result();
  ASSERT_FALSE(estimate.ok());
  EXPECT_THAT(estimate.error().message, HasSubstr("give them in spec.model.embeddings"));
}

TEST(GraphTables, TablesNeedAGraphThatLooksUp) {
  PooledJob job;
  job.graph = testing::gpt();
  const Result<Estimate> estimate = job.result();
  ASSERT_FALSE(estimate.ok());
  EXPECT_THAT(estimate.error().message, HasSubstr("--embedding-inputs"));
}

TEST(GraphTables, TensorParallelismIsRefused) {
  PooledJob job;
  job.request.trainers = 2;
  job.training.parallelism.tensor = 2;
  const Result<Estimate> estimate = job.result();
  ASSERT_FALSE(estimate.ok());
  EXPECT_EQ(estimate.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(estimate.error().message, HasSubstr("graph with embedding tables"));
}

}  // namespace
}  // namespace plimsoll::estimator
