#include "estimator/layer_costs/layer_memory.h"

#include <gtest/gtest.h>

#include "estimator/spec/record.h"

namespace plimsoll::estimator {
namespace {

// A linear layer of 4 to 3 numbers between two others, on the CPU, where bytes are not rounded.
struct Linear {
  Linear() {
    const TensorId x =
        graph.apply(OpKind::kReceive, "input", {}, {per_sample(1), fixed(4)}, ElementType::kFP32);
    const TensorId weight = graph.add_parameter("weight", {fixed(3), fixed(4)}, ElementType::kFP32);
    graph.set_result(
        graph.apply(OpKind::kLinear, "fc", {x, weight}, {per_sample(1), fixed(3)}, ElementType::kFP32));
  }
  Recording recorded(std::int64_t batch) const {
    return record(graph,
                  {.device = Device::kCpu, .batch = batch, .input_batch = batch, .keeps_result = true});
  }
  ForwardGraph graph;
};
const TraceProducer kTorch{.torch = {}, .version = 215, .threads = 0, .cpu_capability = {}};

TEST(LayerMemory, CountsWeightsInputAndResultForward) {
  const Recording recording = Linear().recorded(5);
  const Result<LayerMemory> memory = layer_memory(
      {.trace = &recording.trace, .held = {recording.received, recording.result}}, kTorch, {.batch = 5});
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->forward, Bytes{4 * 12} + Bytes{5 * 4 * 4} + Bytes{5 * 4 * 3});
}

// And backward the gradient that the first microbatch left, a second one beside it, and the input's.
TEST(LayerMemory, CountsTheGradientOfAnEarlierMicrobatchBackward) {
  const Recording recording = Linear().recorded(5);
  const Result<LayerMemory> memory =
      layer_memory({.trace = &recording.trace,
                    .held = {recording.received, recording.result, recording.received_gradient}},
                   kTorch, {.batch = 5});
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->backward, Bytes{3 * 4 * 12} + Bytes{2 * 5 * 4 * 4} + Bytes{2 * 5 * 4 * 3});
}

TEST(LayerMemory, TheLossIsNoPartOfForward) {
  const Recording recording = Linear().recorded(5);
  LayerTrace layer{.trace = &recording.trace, .held = {recording.received}};
  layer.loss_begin = 1;  // the linear layer, as if it were the loss
  const Result<LayerMemory> memory = layer_memory(layer, kTorch, {.batch = 5});
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->forward, Bytes{4 * 12} + Bytes{5 * 4 * 4});
}

TEST(LayerMemory, ABatchThatIsNoneIsAnError) {
  const Recording recording = Linear().recorded(1);
  EXPECT_FALSE(layer_memory({.trace = &recording.trace, .held = {}}, kTorch, {.batch = 0}).ok());
  EXPECT_FALSE(layer_memory({.trace = &recording.trace, .held = {}}, kTorch, {.batch = 7}).ok());
}

}  // namespace
}  // namespace plimsoll::estimator
