#include "estimator/execute/trace_run.h"

#include <gtest/gtest.h>

#include <string>

#include "estimator/execute/run_trace.h"
#include "tests/estimator/graph_files.h"

namespace plimsoll::estimator {
namespace {

TEST(TraceRun, NamesWhatLives) {
  const TraceFile graph = testing::graph_file("linear.json");
  const Result<TraceRun> ran =
      run_trace(graph.traces.front(), graph.producer, {.batch = 4, .optimizer = crds::Optimizer::kAdam});
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  const TraceRun& run = *ran;
  std::string names;
  for (const BlockId block : run.ledger.live_at_peak()) {
    names += run.name_of(block) + ":" + run.kind_of(block) + " ";
  }
  EXPECT_EQ(
      names,
      "input:input weight:parameter bias:parameter weight:optimizer state weight:optimizer state "
      "weight:optimizer state bias:optimizer state bias:optimizer state bias:optimizer state "
      "aten::sum:loss weight:gradient bias:gradient weight:optimizer temporary weight:optimizer temporary ");
}

}  // namespace
}  // namespace plimsoll::estimator
