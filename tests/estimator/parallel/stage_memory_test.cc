// What a stage of a pipeline keeps, as real runs of both versions left it (stage_memory.h).
#include "estimator/parallel/stage_memory.h"

#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

// After a step of 2.6.0 with four micro-batches, a middle stage had four receive buffers of each kind, four
// outputs, and four gradients in the .grad of the receive buffers.
TEST(StageMemory, BuffersOutputsAndSentGradientsStayInTorch26) {
  for (const std::int64_t chunks : {1, 2}) {
    const StageMemory memory = stage_memory_of(206, chunks);
    EXPECT_TRUE(memory.buffers_stay);
    EXPECT_TRUE(memory.outputs_stay);
    EXPECT_TRUE(memory.sent_gradients_stay);
    EXPECT_TRUE(memory.last_scatter_stays);
  }
}

TEST(StageMemory, OnlyTheLastStageKeepsItsOutputsFromTorch28On) {
  EXPECT_TRUE(stage_memory_of(207, 1).outputs_stay);
  EXPECT_FALSE(stage_memory_of(207, 1).last_scatter_stays);
  EXPECT_FALSE(stage_memory_of(208, 1).outputs_stay);
  EXPECT_TRUE(stage_memory_of(208, 1).buffers_stay);
}

TEST(StageMemory, BuffersAreMadeForEachReceiveFromTorch215On) {
  EXPECT_FALSE(stage_memory_of(215, 1).buffers_stay);
  EXPECT_FALSE(stage_memory_of(215, 1).sent_gradients_stay);
  EXPECT_TRUE(
      stage_memory_of(215, 2).sent_gradients_stay);  // an interleaved schedule waits for sends at its end
  EXPECT_TRUE(stage_memory_of(215, 1).last_inputs_stay);
}

}  // namespace
}  // namespace plimsoll::estimator
