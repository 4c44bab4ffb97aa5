#include "estimator/layer_costs/layer_sizes.h"

#include <gtest/gtest.h>

#include "estimator/spec/record.h"

namespace plimsoll::estimator {
namespace {

// Two parameters of 12 and 3 numbers, and one of which there are two.
struct Model {
  Model() {
    const TensorId x = graph.add_input("x", {per_sample(1), fixed(4)}, ElementType::kBF16);
    const TensorId weight = graph.add_parameter("weight", {fixed(3), fixed(4)}, ElementType::kBF16);
    const TensorId bias = graph.add_parameter("bias", {fixed(3)}, ElementType::kBF16);
    graph.apply(OpKind::kLinear, "fc", {x, weight, bias}, {per_sample(1), fixed(3)}, ElementType::kBF16);
  }
  LayerSizes sizes(crds::Optimizer optimizer, bool keeps_fp32) const {
    const Recording recording = record(graph, {.device = Device::kCpu, .batch = 1, .input_batch = 1});
    const Result<TraceShapes> shapes = TraceShapes::at(recording.trace, 1);
    const Result<OptimizerRun> run =
        optimizer_run(optimizer, crds::OptimizerImplementation::kDefault, Device::kCpu, 215);
    return layer_sizes(recording.trace, *shapes, {.optimizer = *run, .keeps_fp32 = keeps_fp32});
  }
  ForwardGraph graph;
};

TEST(LayerSizes, TheStateIsWithoutStepCounts) {
  const LayerSizes sizes = Model().sizes(crds::Optimizer::kAdamW, false);
  EXPECT_EQ(sizes.weights, Bytes{30});
  EXPECT_EQ(sizes.host_weights, Bytes{30});
  EXPECT_EQ(sizes.state, Bytes{60});
  EXPECT_EQ(sizes.parameters, 2);
  EXPECT_EQ(Model().sizes(crds::Optimizer::kSGD, false).state, Bytes{});
  EXPECT_EQ(Model().sizes(crds::Optimizer::kMomentum, false).state, Bytes{30});
}

TEST(LayerSizes, TheHostMayKeepFp32) {
  const LayerSizes sizes = Model().sizes(crds::Optimizer::kAdamW, true);
  EXPECT_EQ(sizes.weights, Bytes{30});
  EXPECT_EQ(sizes.host_weights, Bytes{60});
  EXPECT_EQ(sizes.state, Bytes{120});
}

}  // namespace
}  // namespace plimsoll::estimator
