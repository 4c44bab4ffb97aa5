// What a stage of a pipeline keeps, as real runs of both versions left it (stage_memory.h).
#include "estimator/parallel/stage_memory.h"

#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

StageMemory of_fsdp2(TorchVersion version, std::int64_t chunks) {
  return stage_memory_of(version, chunks, crds::ParallelStrategy::kFSDP2);
}

// After a step of 2.6.0 with four micro-batches, a middle stage had four receive buffers of each kind, four
// outputs, and four gradients in the .grad of the receive buffers.
TEST(StageMemory, BuffersOutputsAndSentGradientsStayInTorch26) {
  for (const std::int64_t chunks : {1, 2}) {
    const StageMemory memory = of_fsdp2(206, chunks);
    EXPECT_TRUE(memory.buffers_stay);
    EXPECT_TRUE(memory.outputs_stay);
    EXPECT_TRUE(memory.sent_gradients_stay);
    EXPECT_TRUE(memory.last_scatter_stays);
  }
}

TEST(StageMemory, OnlyTheLastStageKeepsItsOutputsFromTorch28On) {
  EXPECT_TRUE(of_fsdp2(207, 1).outputs_stay);
  EXPECT_FALSE(of_fsdp2(207, 1).last_scatter_stays);
  EXPECT_FALSE(of_fsdp2(208, 1).outputs_stay);
  EXPECT_TRUE(of_fsdp2(208, 1).buffers_stay);
}

TEST(StageMemory, BuffersAreMadeForEachReceiveFromTorch215On) {
  EXPECT_FALSE(of_fsdp2(215, 1).buffers_stay);
  EXPECT_FALSE(of_fsdp2(215, 1).sent_gradients_stay);
  EXPECT_TRUE(of_fsdp2(215, 2).sent_gradients_stay);  // an interleaved schedule waits for sends at its end
  EXPECT_TRUE(of_fsdp2(215, 1).last_inputs_stay);
  EXPECT_TRUE(of_fsdp2(215, 1).last_outputs_stay);
}

// Estimates of a pipeline of two stages were 68 and 73 % above a real rank's memory.
TEST(StageMemory, MegatronKeepsNothing) {
  for (const TorchVersion version : {206, 215}) {
    const StageMemory memory = stage_memory_of(version, 1, crds::ParallelStrategy::kMegatron);
    EXPECT_FALSE(memory.buffers_stay || memory.outputs_stay || memory.last_outputs_stay ||
                 memory.sent_gradients_stay || memory.last_inputs_stay || memory.last_scatter_stays);
  }
}

}  // namespace
}  // namespace plimsoll::estimator
