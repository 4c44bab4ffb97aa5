#include "cli/text_table.h"

#include <gmock/gmock.h>

#include <limits>

namespace plimsoll::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(TextTable, LinesUpTextAndNumbers) {
  TextTable table({"name", "count"});
  table.add({"a", "5"});
  table.add({"longer", "100"});
  EXPECT_EQ(table.to_string(" "),
            " name    count\n"
            " a           5\n"
            " longer    100\n");
  EXPECT_EQ(TextTable({"only"}).to_string(""), "only\n");
}

TEST(Bar, ShowsTheShareAndStaysWithinItsWidth) {
  EXPECT_EQ(bar(0.5, 4, false), "##..");
  EXPECT_EQ(bar(7, 3, false), "###");
  EXPECT_EQ(bar(-1, 3, false), "...");
  EXPECT_EQ(bar(std::numeric_limits<double>::quiet_NaN(), 2, false), "..");
  EXPECT_EQ(bar(1, 2, true), "\u2588\u2588");
}

TEST(BreakdownBars, LeaveOutWhatIsZeroAndEndWithTheSum) {
  estimator::Breakdown breakdown;
  breakdown.embeddings = 60_GiB;
  breakdown.activations = 20_GiB;
  const std::string text = breakdown_bars(breakdown, 160_GiB, false);
  EXPECT_THAT(text, HasSubstr("embeddings        60.0 GiB  ###############"));
  EXPECT_LT(text.find("embeddings"), text.find("activations"));
  EXPECT_THAT(text, Not(HasSubstr("workspace")));
  EXPECT_THAT(text,
              HasSubstr("upper bound       80.0 GiB  ####################....................  50.0%\n"));
}

TEST(HostMemoryLine, NamesTheParts) {
  EXPECT_EQ(host_memory_line({}), "");
  EXPECT_EQ(host_memory_line({.parameters = 2_GiB, .optimizer_state = 4_GiB, .checkpoint = {}}),
            "  host memory 6.00 GiB: parameters 2.00 GiB, optimizer state 4.00 GiB\n");
}

TEST(InitialLine, SaysWhereTheModelIsMade) {
  using crds::Initialisation;
  using crds::ParallelStrategy;
  estimator::Estimate estimate;
  EXPECT_EQ(initial_line(estimate, ParallelStrategy::kFSDP), "");
  estimate.initial = estimator::InitialPeak{
      .where = Initialisation::kMeta, .upper_bound = 1_GiB, .on_cpu = 2_GiB, .on_gpu = 3_GiB};
  EXPECT_EQ(
      initial_line(estimate, ParallelStrategy::kZeRO3),
      "  before the first iteration at most 1.00 GiB, made within zero.Init (on the CPU 2.00 GiB, on the GPU 3.00 GiB)\n");
  estimate.initial->on_cpu.reset();
  estimate.initial->on_gpu.reset();
  EXPECT_EQ(initial_line(estimate, ParallelStrategy::kFSDP2),
            "  before the first iteration at most 1.00 GiB, made on the meta device\n");
  estimate.initial->where = Initialisation::kCPU;
  EXPECT_EQ(initial_line(estimate, ParallelStrategy::kFSDP),
            "  before the first iteration at most 1.00 GiB, made on the CPU\n");
}

TEST(Texts, PickTheirUnit) {
  EXPECT_EQ(milliseconds_text(12.34), "12.3 ms");
  EXPECT_EQ(milliseconds_text(999.6), "1 s");
  EXPECT_EQ(milliseconds_text(12'340), "12.3 s");
  EXPECT_EQ(percent_text(0.375), "37.5%");
}

}  // namespace
}  // namespace plimsoll::cli
