#include "estimator/execute/prepared_trace.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/estimator/graph_files.h"

namespace plimsoll::estimator {
namespace {

TEST(PreparedTrace, HasSizesAndTemporariesForTheBatch) {
  const TraceFile graph = testing::graph_file("linear.json");
  const Trace& trace = graph.traces.front();
  const Result<PreparedTrace> small = prepare_trace(trace, graph.producer, {.batch = 4});
  const Result<PreparedTrace> large =
      prepare_trace(trace, graph.producer, {.batch = 16, .gradient_accumulation = 2});
  ASSERT_TRUE(small.ok() && large.ok());
  EXPECT_EQ(small->kernels.inside.size(), trace.operators.size());
  EXPECT_EQ(small->parameters.size(), trace.parameters.size());
  bool grows = false;
  for (std::size_t i = 0; i < trace.storages.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    EXPECT_EQ(small->shapes.storage(id).count, trace.storages[i].bytes.at(4));
    EXPECT_EQ(large->shapes.storage(id).count, trace.storages[i].bytes.at(8)) << "of a micro-batch";
    grows = grows || small->shapes.storage(id) < large->shapes.storage(id);
  }
  EXPECT_TRUE(grows);
}

TEST(PreparedTrace, GradientAccumulationDividesTheBatch) {
  const TraceFile graph = testing::graph_file("linear.json");
  const Result<void> checked = check_request(graph.traces.front(), {.batch = 9, .gradient_accumulation = 2});
  ASSERT_FALSE(checked.ok());
  EXPECT_NE(checked.error().message.find("must divide the batch of 9, is 2"), std::string::npos);
  EXPECT_TRUE(check_request(graph.traces.front(), {.batch = 9, .gradient_accumulation = 3}).ok());
}

TEST(PreparedTrace, ZeroedSparseGradientsAreRefused) {
  TraceFile graph = testing::graph_file("linear.json");
  graph.traces.front().parameters[0].sparse_gradient = true;
  const Result<TraceRun> run =
      run_trace(graph.traces.front(), graph.producer, {.batch = 8, .set_to_none = false});
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(run.error().message.find("setToNone"), std::string::npos);
}

TEST(PreparedTrace, ARecordingAtOneBatchHoldsForThatAlone) {
  TraceFile graph = testing::graph_file("linear.json");
  graph.traces.front().batch_sizes = {8};
  EXPECT_TRUE(run_trace(graph.traces.front(), graph.producer, {.batch = 8}).ok());
  const Result<TraceRun> other = run_trace(graph.traces.front(), graph.producer, {.batch = 9});
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("--batch-size 9"), std::string::npos);
}

TEST(PreparedTrace, RefusesWhatCannotBe) {
  const TraceFile graph = testing::graph_file("linear.json");
  EXPECT_FALSE(run_trace(graph.traces.front(), graph.producer, {.batch = 0}).ok());
  EXPECT_FALSE(run_trace(graph.traces.front(), graph.producer, {.batch = -5}).ok());
  TraceFile shrinking = graph;
  shrinking.traces.front().storages[3].bytes = Count{{100, -10, 0, 0}};
  EXPECT_TRUE(run_trace(shrinking.traces.front(), graph.producer, {.batch = 10}).ok());
  EXPECT_EQ(run_trace(shrinking.traces.front(), graph.producer, {.batch = 11}).error().code,
            ErrorCode::kInvalid);
  TraceFile huge = graph;
  huge.traces.front().storages[3].bytes = Count{{0, 4e18, 0, 0}};
  EXPECT_EQ(run_trace(huge.traces.front(), graph.producer, {.batch = 11}).error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace plimsoll::estimator
