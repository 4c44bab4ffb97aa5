#include "cli/swap_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plimsoll::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

SwapReport report() {
  SwapReport report;
  report.planned.plan = {.mode = estimator::SwapMode::kVPP,
                         .gpus = 2,
                         .samples = 8,
                         .forward_microbatch = 4,
                         .backward_microbatch = 2,
                         .forward_packs = {0},
                         .backward_packs = {0, 3}};
  report.planned.seconds = 0.25;
  report.planned.bound_seconds = 0.2;
  report.planned.volumes.weights_in = 3_GiB;
  report.planned.host.model = 2_GiB;
  report.times.compute_seconds = {0.2, 0.1};
  report.timeline = {{.action = estimator::SwapAction::kForward,
                      .stream = estimator::SwapStream::kCompute,
                      .gpu = 1,
                      .task = 0,
                      .microbatch = 1,
                      .begin = 0.05,
                      .end = 0.1}};
  report.machine.host_bandwidth = 1 << 30;
  report.capacity = 8_GiB;
  report.layers = 6;
  return report;
}

TEST(SwapReport, SaysWhatAnIterationTakesAndMoves) {
  const std::string text = swap_report_text(report());
  EXPECT_THAT(text,
              HasSubstr("vPP on 2 GPUs of 8.00 GiB, 6 layers, 8 samples: 250 ms an iteration, 32 samples/s"));
  EXPECT_THAT(text, HasSubstr("200 ms for any plan; this one takes 25 % more"));
  EXPECT_THAT(text, HasSubstr("backward packs  2, from layers 0, 3"));
  EXPECT_THAT(text, HasSubstr("host 1.00 GiB/s, no GPU to GPU"));
  EXPECT_THAT(text, HasSubstr("weights in"));
  EXPECT_THAT(text, HasSubstr("80 %"));
  EXPECT_THAT(text, Not(HasSubstr("search"))) << "nothing was searched";
}

TEST(SwapReport, SaysWhichLayersStay) {
  SwapReport staying = report();
  EXPECT_THAT(swap_report_text(staying), HasSubstr("stay on a GPU   none\n"));
  staying.planned.plan.resident = {0, 1, 2, 5};
  EXPECT_THAT(swap_report_text(staying),
              HasSubstr("4 of 6: layers 0 to 2, 5, with their gradients and optimizer"));
  staying.layers = 100;
  staying.planned.plan.resident.clear();
  for (std::size_t layer = 0; layer < 100; layer += 2) {
    staying.planned.plan.resident.push_back(layer);
  }
  EXPECT_THAT(swap_report_text(staying),
              HasSubstr("50 of 100: layers 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, ..., with"));
}

TEST(SwapReport, ThePageHasEachEventWithItsTaskAndWhatThatHolds) {
  SwapReport with_memory = report();
  with_memory.task_memory = {Bytes{7}, Bytes{8}, Bytes{9}};
  const std::string page = swap_report_page(with_memory);
  EXPECT_THAT(page, HasSubstr("const events = [[1,2,4,0,1,0.05,0.1]];"));
  EXPECT_THAT(page, HasSubstr("const tasks = [[1,0,3,7,0],[0,3,6,8,1],[0,0,3,9,0]];"));
  EXPECT_THAT(page, HasSubstr("const capacity = 8589934592;"));
  EXPECT_THAT(page, HasSubstr("<th scope=\"row\">GPU 1</th>")) << "how long its streams are busy";
}

// A page of 100,000 events would be slow to draw.
TEST(SwapReport, RunsOfATooLongTimelineAreJoined) {
  SwapReport long_one = report();
  long_one.timeline.clear();
  for (int i = 0; i < 100'000; ++i) {
    long_one.timeline.push_back({.action = estimator::SwapAction::kForward,
                                 .stream = estimator::SwapStream::kCompute,
                                 .gpu = 0,
                                 .task = i / 50'000,
                                 .microbatch = i,
                                 .begin = i * 1.0,
                                 .end = i + 1.0});
  }
  EXPECT_THAT(swap_report_page(long_one),
              HasSubstr("const events = [[0,2,4,0,0,0,50000],[0,2,4,1,50000,50000,100000]];"));
}

}  // namespace
}  // namespace plimsoll::cli
