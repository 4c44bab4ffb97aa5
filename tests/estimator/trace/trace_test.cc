#include "estimator/trace/trace.h"

#include <gtest/gtest.h>

#include <limits>

namespace plimsoll::estimator {
namespace {

TEST(Trace, CountsAreRoundedAndSaturate) {
  EXPECT_EQ((Count{{1, 0.5, 0, 0}}.at(3)), 3);
  EXPECT_EQ((Count{{0, 0, 4, 0}}.at(1000)), 4'000'000);
  EXPECT_EQ((Count{{0, 4e18, 0, 0}}.at(1000)), std::numeric_limits<std::int64_t>::max());
}

TEST(Trace, CountsSaturateAtTheLowerEndToo) {
  EXPECT_EQ((Count{{0, -4e18, 0, 0}}.at(1000)), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ((Count{{-1e300, 0, 0, 0}}.at(1)), std::numeric_limits<std::int64_t>::min());
}

TEST(Trace, OnlyHigherTermsDependOnTheBatch) {
  const Count seven = Count::constant(7);
  EXPECT_FALSE(seven.depends_on_batch());
  EXPECT_EQ(seven.at(1), 7);
  EXPECT_EQ(seven.at(std::numeric_limits<std::int64_t>::max()), 7);
  EXPECT_TRUE((Count{{7, 0, 0, 1}}.depends_on_batch()));
  EXPECT_EQ((Count{{7, 0, 0, 1}}.at(3)), 7 + 27);
}

TEST(Trace, LargeConstantsAreExact) {
  EXPECT_EQ(Count::constant(std::int64_t{1} << 53).at(5), std::int64_t{1} << 53);
  EXPECT_EQ(Count::constant(std::int64_t{1} << 62).at(5), std::int64_t{1} << 62);
}

TEST(Trace, DtypesHavePyTorchsWidths) {
  EXPECT_EQ(width_of_dtype("float32"), 4);
  EXPECT_EQ(width_of_dtype("bfloat16"), 2);
  EXPECT_EQ(width_of_dtype("float8_e4m3fn"), 1);
  EXPECT_EQ(width_of_dtype("bool"), 1);
  EXPECT_EQ(width_of_dtype("complex128"), 16);
  EXPECT_EQ(width_of_dtype("torch.float32"), 0);
  EXPECT_EQ(width_of_dtype(""), 0);
  EXPECT_TRUE(is_floating_dtype("float8_e5m2"));
  EXPECT_FALSE(is_floating_dtype("int64"));
  EXPECT_FALSE(is_floating_dtype("complex64")) << "as torch.dtype.is_floating_point";
  EXPECT_FALSE(is_floating_dtype("unknown"));
}

TEST(Trace, MemoryIsThatOfItsTables) {
  Trace trace;
  const Bytes empty = memory_of(trace);
  trace.storages.resize(1000);
  EXPECT_GE(memory_of(trace), empty + Bytes{1000 * sizeof(TraceStorage)});
  const Bytes before = memory_of(trace);
  trace.modules.emplace_back(5000, 'x');
  EXPECT_GE(memory_of(trace), before + Bytes{5000});
  TraceFile file;
  file.traces = {trace, trace};
  EXPECT_GE(memory_of(file), memory_of(trace) * 2);
}

TEST(Trace, TheBudgetPaysForTheLongTables) {
  Budget budget({.memory = Bytes{1000}});
  Trace trace(&budget);
  EXPECT_THROW(trace.storages.resize(1000), BudgetExceeded);
}

}  // namespace
}  // namespace plimsoll::estimator
