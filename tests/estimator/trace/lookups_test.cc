#include "estimator/trace/lookups.h"

#include <gtest/gtest.h>

#include "tests/estimator/graph_files.h"

namespace plimsoll::estimator {
namespace {

TEST(Lookups, AreToldFromOtherOperators) {
  const TraceFile graph = testing::graph_file("pooled.json");
  const Trace& trace = graph.traces.front();
  const std::optional<Lookup> forward = lookup_of(trace, trace.operators[0]);
  ASSERT_TRUE(forward.has_value());
  EXPECT_FALSE(forward->backward);
  EXPECT_TRUE(forward->pooled);
  EXPECT_EQ(forward->columns, 3);
  EXPECT_FALSE(forward->has_indices);
  EXPECT_FALSE(lookup_of(trace, trace.operators[1]).has_value());
  const std::optional<Lookup> backward = lookup_of(trace, trace.operators.back());
  ASSERT_TRUE(backward.has_value());
  EXPECT_TRUE(backward->backward);
  EXPECT_TRUE(backward->pooled);
}

}  // namespace
}  // namespace plimsoll::estimator
