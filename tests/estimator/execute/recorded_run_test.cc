#include "estimator/execute/recorded_run.h"

#include <gtest/gtest.h>

#include "tests/estimator/graph_files.h"

namespace plimsoll::estimator {
namespace {

TraceRunRequest sharded(std::int64_t replicas) {
  return {.batch = 8, .replication = {.strategy = crds::ParallelStrategy::kFSDP2, .replicas = replicas}};
}

TraceRun run(const TraceRunRequest& request) {
  Result<TraceRun> run = run_trace(testing::gpt().traces.front(), testing::gpt().producer, request);
  EXPECT_TRUE(run.ok());
  return *std::move(run);
}

// Runs until one is recorded.
std::shared_ptr<const RecordedRun> record(PreparedTraces& traces, std::int64_t replicas) {
  TraceRunRequest request = sharded(replicas);
  request.prepared = &traces;
  for (int i = 0; i < 3; ++i) {
    run(request);
  }
  return traces.recorded();
}

TEST(RecordedRun, OtherNumbersOfTrainersAreAsIfTheyHadRun) {
  PreparedTraces traces;
  const std::shared_ptr<const RecordedRun> recorded = record(traces, 2);
  ASSERT_NE(recorded, nullptr);
  const OptimizerRun optimizer = recorded->run.replicated.optimizer;
  for (const std::int64_t replicas : {3, 8, 64}) {
    const TraceRunRequest request = sharded(replicas);
    const std::optional<TraceRun> resized = recorded->resized(request, optimizer);
    ASSERT_TRUE(resized.has_value()) << replicas;
    const TraceRun whole = run(request);
    EXPECT_EQ(resized->ledger.peak(), whole.ledger.peak()) << replicas;
    EXPECT_EQ(resized->replicated.replication.replicas, replicas);
  }
}

TEST(RecordedRun, IsOfRunsThatDifferInTheNumberOfTrainersAlone) {
  PreparedTraces traces;
  const std::shared_ptr<const RecordedRun> recorded = record(traces, 2);
  ASSERT_NE(recorded, nullptr);
  TraceRunRequest same = sharded(16);
  same.schedule = recorded->schedule;
  EXPECT_TRUE(recorded->is_of(recorded->traces, same));
  EXPECT_FALSE(recorded->is_of({}, same));
  TraceRunRequest kept_whole = same;
  kept_whole.replication.reshard_after_forward = false;
  EXPECT_FALSE(recorded->is_of(recorded->traces, kept_whole));
  TraceRunRequest scheduled = same;
  scheduled.schedule.clear();
  EXPECT_FALSE(recorded->is_of(recorded->traces, scheduled));
}

TEST(RecordedRun, IsMadeOfWhatDependsOnTheTrainersInTheLifeCycleAlone) {
  EXPECT_TRUE(is_recordable(sharded(2)));
  EXPECT_FALSE(is_recordable(sharded(1))) << "nothing is gathered";
  TraceRunRequest replicated = sharded(2);
  replicated.replication.strategy = crds::ParallelStrategy::kDDP;
  EXPECT_FALSE(is_recordable(replicated));
  TraceRunRequest validation = sharded(2);
  validation.between = BetweenIterations{};
  EXPECT_FALSE(is_recordable(validation));

  TraceFile graph = testing::graph_file("linear.json");
  Trace& trace = graph.traces.front();
  const Result<PreparedTrace> prepared = prepare_trace(trace, graph.producer, sharded(2));
  ASSERT_TRUE(prepared.ok());
  EXPECT_TRUE(is_recordable(trace, *prepared));
  // Rows of all trainers are exchanged. This was asked before the parameters were known, and so never seen.
  trace.parameters[0].sparse_gradient = true;
  EXPECT_FALSE(is_recordable(trace, *prepared));
}

}  // namespace
}  // namespace plimsoll::estimator
