#include "estimator/swap/schedule.h"

#include <gtest/gtest.h>

#include <string>

namespace plimsoll::estimator {
namespace {

// "F0 F1 B1 U1 ...": kind and layer, with the GPU and the number of microbatches where they are not 0 and 1.
std::string text(SwapMode mode, std::size_t layers, const SwapWork& work) {
  std::string line;
  for (const SwapTask& task : swap_tasks(mode, layers, work)) {
    line += line.empty() ? "" : " ";
    line += task.kind == SwapTask::Kind::kForward ? "F" : task.kind == SwapTask::Kind::kBackward ? "B" : "U";
    line += std::to_string(task.layer);
    line += task.gpu > 0 ? "@" + std::to_string(task.gpu) : "";
    line += task.microbatches > 1 ? "x" + std::to_string(task.microbatches) : "";
  }
  return line;
}

TEST(SwapTasks, ReplicasThatSwapForThemselvesTakeOneMicrobatchAfterTheOther) {
  EXPECT_EQ(text(SwapMode::kDP, 2, {.gpus = 2, .microbatches = 2}),
            "F0 F1 B1 B0 U0 U1 F0@1 F1@1 B1@1 B0@1 U0@1 U1@1");
}

TEST(SwapTasks, APipelinesStagesOwnRunsOfLayers) {
  EXPECT_EQ(text(SwapMode::kPP, 4, {.gpus = 2, .microbatches = 1}),
            "F0 F1 F2@1 F3@1 B3@1 B2@1 B1 B0 U0 U1 U2@1 U3@1");
}

TEST(SwapTasks, HarmonyTakesAllMicrobatchesAtOnceAndUpdatesAtOnce) {
  EXPECT_EQ(text(SwapMode::kVDP, 2, {.gpus = 1, .microbatches = 3}), "F0x3 F1x3 B1x3 U1 B0x3 U0");
}

TEST(SwapTasks, HarmonysPipelineGoesRoundTheGpus) {
  EXPECT_EQ(text(SwapMode::kVPP, 3, {.gpus = 2, .microbatches = 2}),
            "F0x2 F1@1x2 F2x2 B2@1x2 U2@1 B1x2 U1 B0@1x2 U0@1");
}

}  // namespace
}  // namespace plimsoll::estimator
