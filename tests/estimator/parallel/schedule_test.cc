#include "estimator/parallel/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace plimsoll::estimator {
namespace {

// "F0 F1 B0 B1": forward of micro-batch 0, ...; with several chunks "F1.0" is chunk 1's.
std::string written(const std::vector<ScheduleStep>& steps, bool chunks = false) {
  std::string text;
  for (const ScheduleStep& step : steps) {
    text += text.empty() ? "" : " ";
    text += step.forward ? "F" : "B";
    text += chunks ? std::to_string(step.chunk) + "." : "";
    text += std::to_string(step.micro_batch);
  }
  return text;
}

// arXiv 2104.04473, figure 4, bottom, with two stages.
TEST(PipelineSchedule, OneForwardOneBackward) {
  EXPECT_EQ(written(pipeline_schedule(0, 2, 1, 3)), "F0 F1 B0 F2 B1 B2");
  EXPECT_EQ(written(pipeline_schedule(1, 2, 1, 3)), "F0 B0 F1 B1 F2 B2");
}

TEST(PipelineSchedule, OneStageAccumulatesGradients) {
  EXPECT_EQ(written(pipeline_schedule(0, 1, 1, 3)), "F0 B0 F1 B1 F2 B2");
  EXPECT_EQ(written(pipeline_schedule(0, 1, 1, 0)), "");
}

// Each chunk takes as many micro-batches in turn as there are stages; backward begins with the last chunk.
TEST(PipelineSchedule, InterleavedChunksTakeTurns) {
  EXPECT_EQ(written(pipeline_schedule(0, 2, 2, 4), true),
            "F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 F0.3 B1.1 F1.2 B0.0 F1.3 B0.1 B1.2 B1.3 B0.2 B0.3");
  EXPECT_EQ(written(pipeline_schedule(1, 2, 2, 2), true), "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 B0.0 B0.1");
}

TEST(PipelineSchedule, WarmUpIsLimitedByTheMicroBatches) {
  EXPECT_EQ(warm_up(0, 4, 1, 8), 3);
  EXPECT_EQ(warm_up(3, 4, 1, 8), 0);
  EXPECT_EQ(warm_up(0, 4, 1, 2), 2);
  EXPECT_EQ(warm_up(0, 4, 2, 8), 2 * 3 + 4);
  EXPECT_EQ(warm_up(3, 4, 2, 8), 4);
  EXPECT_EQ(warm_up(0, 4, 2, 1), 2) << "one micro-batch through both chunks";
  EXPECT_EQ(written(pipeline_schedule(0, 4, 1, 2)), "F0 F1 B0 B1");
}

TEST(PipelineSchedule, StagesHoldAsManyMicroBatchesAsFollowThem) {
  for (const std::int64_t stages : {1, 2, 4}) {
    for (std::int64_t stage = 0; stage < stages; ++stage) {
      for (const std::int64_t micro_batches : {1, 4, 8}) {
        std::int64_t alive = 0, most = 0, done = 0;
        for (const ScheduleStep& step : pipeline_schedule(stage, stages, 1, micro_batches)) {
          alive += step.forward ? 1 : -1;
          done += step.forward ? 0 : 1;
          most = std::max(most, alive);
        }
        EXPECT_EQ(alive, 0);
        EXPECT_EQ(done, micro_batches);
        EXPECT_EQ(most, std::min(micro_batches, stages - stage));
      }
    }
  }
  // Narayanan et al., arXiv 2104.04473 section 2.2: interleaving v chunks needs 1 + (p - 1) / (p v) times the
  // memory on the first stage: p v + p - 1 chunks, with 1 / v of the stage's layers each.
  for (const std::int64_t stages : {2, 4}) {
    for (const std::int64_t chunks : {2, 3}) {
      std::int64_t alive = 0, most = 0;
      std::vector<std::vector<bool>> forward(static_cast<std::size_t>(chunks), std::vector<bool>(16, false));
      for (const ScheduleStep& step : pipeline_schedule(0, stages, chunks, 16)) {
        auto&& seen =
            forward[static_cast<std::size_t>(step.chunk)][static_cast<std::size_t>(step.micro_batch)];
        EXPECT_NE(static_cast<bool>(seen), step.forward) << "each once, forward first";
        seen = step.forward;
        alive += step.forward ? 1 : -1;
        most = std::max(most, alive);
      }
      EXPECT_EQ(alive, 0);
      EXPECT_EQ(most, stages * chunks + stages - 1);
    }
  }
}

}  // namespace
}  // namespace plimsoll::estimator
