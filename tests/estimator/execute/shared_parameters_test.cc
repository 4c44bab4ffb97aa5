#include "estimator/execute/shared_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/estimator/graph_files.h"

namespace plimsoll::estimator {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TraceRunRequest request_of(crds::ParallelStrategy strategy, std::int64_t replicas) {
  return {.batch = 8, .replication = {.strategy = strategy, .replicas = replicas}};
}

PreparedTrace prepared(const TraceFile& graph, const Trace& trace, const TraceRunRequest& request) {
  Result<PreparedTrace> prepared = prepare_trace(trace, graph.producer, request);
  EXPECT_TRUE(prepared.ok());
  return *std::move(prepared);
}

TEST(SharedParameters, ChunksHaveTheirParametersAndUnitsOneAfterTheOther) {
  const Trace& trace = testing::gpt().traces.front();
  const TraceRunRequest request = request_of(crds::ParallelStrategy::kFSDP2, 2);
  const PreparedTrace ready = prepared(testing::gpt(), trace, request);
  SharedParameters shared(request);
  const ChunkParameters first = shared.add(0, trace, ready);
  const ChunkParameters second = shared.add(1, trace, ready);
  const std::size_t count = trace.parameters.size();
  ASSERT_THAT(shared.origins(), SizeIs(2 * count));
  EXPECT_EQ(shared.origin(0).chunk, 0);
  EXPECT_EQ(shared.origin(count).chunk, 1);
  EXPECT_EQ(shared.origin(count).parameter, shared.origin(0).parameter);
  EXPECT_EQ(first.first_unit, 0);
  EXPECT_GT(first.end_unit, 1);
  EXPECT_EQ(second.first_unit, first.end_unit);
  EXPECT_EQ(second.end_unit, 2 * first.end_unit);
  EXPECT_THAT(first.own, IsEmpty());
  for (std::size_t i = 0; i < count; ++i) {
    const TraceParameter& of = trace.parameters[shared.origin(count + i).parameter];
    EXPECT_EQ(second.shared[index(of.storage)], static_cast<std::int32_t>(count + i));
    EXPECT_EQ(second.shared[index(of.gradient.front())], static_cast<std::int32_t>(count + i));
  }
  EXPECT_THAT(shared.take_parameters(), SizeIs(2 * count));
}

TEST(SharedParameters, SparseOnesStayWithTheirChunk) {
  TraceFile graph = testing::graph_file("linear.json");
  Trace& trace = graph.traces.front();
  trace.parameters[0].sparse_gradient = true;
  for (const std::int64_t replicas : {1, 4}) {
    const TraceRunRequest request = request_of(crds::ParallelStrategy::kAuto, replicas);
    SharedParameters shared(request);
    const ChunkParameters parameters = shared.add(0, trace, prepared(graph, trace, request));
    EXPECT_THAT(parameters.own, SizeIs(1));
    EXPECT_EQ(parameters.shared[index(trace.parameters[0].storage)], -1);
    EXPECT_THAT(shared.origins(), SizeIs(trace.parameters.size() - 1));
    EXPECT_THAT(shared.warnings(), SizeIs(replicas == 1 ? 0 : 1)) << "alone, nothing is exchanged";
  }
}

TEST(SharedParameters, FrozenOnesAreSharedWhereParametersAreGathered) {
  TraceFile graph = testing::graph_file("linear.json");
  Trace& trace = graph.traces.front();
  trace.parameters[0].gradient.clear();
  for (const auto strategy : {crds::ParallelStrategy::kDDP, crds::ParallelStrategy::kFSDP2}) {
    const bool gathers = strategy == crds::ParallelStrategy::kFSDP2;
    const TraceRunRequest request = request_of(strategy, 4);
    SharedParameters shared(request);
    const ChunkParameters parameters = shared.add(0, trace, prepared(graph, trace, request));
    EXPECT_EQ(parameters.shared[index(trace.parameters[0].storage)] >= 0, gathers);
    const BudgetVector<ReplicaParameter> replicas = shared.take_parameters();
    EXPECT_EQ(std::count_if(replicas.begin(), replicas.end(),
                            [](const ReplicaParameter& each) { return !each.trained; }),
              gathers ? 1 : 0);
  }
}

TEST(SharedParameters, WarnOnceOfPaddingThatIsWorthIt) {
  const TraceRunRequest request = request_of(crds::ParallelStrategy::kFSDP2, 64);
  const ReplicaParameter experts = {
      .elements = 8 * 512 * 256, .rows = 8 * 512, .columns = 8 * 256, .dimensions = 3, .first = 8};
  const ReplicaParameter adapter = {
      .elements = 16 * 4096, .rows = 16, .columns = 4096, .dimensions = 2, .first = 16};
  SharedParameters shared(request);
  shared.warn_of_padding("lora_A", adapter);
  EXPECT_THAT(shared.warnings(), IsEmpty());
  shared.warn_of_padding("", experts);
  shared.warn_of_padding("again", experts);
  ASSERT_THAT(shared.warnings(), SizeIs(1));
  EXPECT_THAT(shared.warnings().front(), HasSubstr("weight of experts has 8 rows, which FSDP2 pads to 64"));
  const TraceRunRequest fsdp = request_of(crds::ParallelStrategy::kFSDP, 64);
  SharedParameters flat(fsdp);
  flat.warn_of_padding("", experts);
  EXPECT_THAT(flat.warnings(), IsEmpty()) << "FSDP pads the flat parameter alone";
}

}  // namespace
}  // namespace plimsoll::estimator
