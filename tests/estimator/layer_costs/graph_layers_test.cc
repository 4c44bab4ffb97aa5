#include "estimator/layer_costs/graph_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/estimator/layer_costs/measured_layers.h"

namespace plimsoll::estimator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Job {
  explicit Job(const char* name) : graph(testing::exported_model(name)) {}
  Result<ProfiledLayers> layers() const {
    const Result<OptimizerRun> run =
        optimizer_run(crds::Optimizer::kAdamW, crds::OptimizerImplementation::kDefault, Device::kCpu, 215);
    return layers_of_graph({.model = &model,
                            .training = &training,
                            .graph = &graph,
                            .gpu = testing::gpu_named("A100-80GB"),
                            .device = Device::kCpu},
                           training, {.optimizer = *run});
  }
  crds::ModelSpec model;
  crds::TrainingSpec training;
  TraceFile graph;
};

TEST(GraphLayers, EqualBlocksAreLookedAtOnce) {
  for (const char* const name : {"gpt2", "llama", "bert"}) {
    const Job job(name);
    const Result<ProfiledLayers> layers = job.layers();
    ASSERT_TRUE(layers.ok()) << to_string(layers.error());
    EXPECT_THAT(layers->kind_of, ElementsAre(0, 1, 1, 2)) << name;
  }
}

TEST(GraphLayers, ALayerWithoutOperatorsHoldsItsInputAndItsGradient) {
  const Job job("convolutions");
  const Result<ProfiledLayers> layers = job.layers();
  ASSERT_TRUE(layers.ok());
  const std::size_t flatten = layers->kind_of[5];
  EXPECT_EQ(layers->kinds[flatten].weights, Bytes{});
  const Result<LayerCosts> costs = layers->costs(flatten, 4);
  ASSERT_TRUE(costs.ok());
  EXPECT_EQ(costs->memory.forward, Bytes{4 * 32 * 4});
  EXPECT_EQ(costs->memory.backward, Bytes{2 * 4 * 32 * 4});
  EXPECT_EQ(costs->forward_seconds, 0);
}

TEST(GraphLayers, TimesAreThoseOfTheCard) {
  const Job job("gpt2");
  const Result<ProfiledLayers> layers = job.layers();
  ASSERT_TRUE(layers.ok());
  const Result<LayerCosts> block = layers->costs(layers->kind_of[1], 4);
  ASSERT_TRUE(block.ok());
  EXPECT_GT(block->forward_seconds, 0);
  EXPECT_GT(block->backward_seconds, 2 * block->forward_seconds) << "with the forward pass that it repeats";
}

TEST(GraphLayers, AGraphOfOneBatchSizeIsRefused) {
  Job job("gpt2");
  job.graph.traces.front().batch_sizes = {4};
  const Result<ProfiledLayers> layers = job.layers();
  ASSERT_FALSE(layers.ok());
  EXPECT_THAT(to_string(layers.error()), HasSubstr("Unsupported: the graph was recorded at batch 4 alone"));
}

TEST(GraphLayers, ADeviceThatWasNotExportedIsRefused) {
  Job job("gpt2");
  job.graph.traces.front().device = Device::kCuda;
  EXPECT_FALSE(job.layers().ok());
}

}  // namespace
}  // namespace plimsoll::estimator
