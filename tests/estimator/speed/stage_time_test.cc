#include "estimator/speed/stage_time.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "estimator/catalog/gpu_catalog.h"
#include "estimator/transformer/transformer.h"

namespace plimsoll::estimator {
namespace {

StageTime time_of(crds::ActivationCheckpointing checkpointing, std::int64_t layers,
                  Fusion fusion = Fusion::kNone) {
  TransformerSpec spec;
  spec.layers = layers;
  spec.hidden = 1024;
  spec.heads = spec.kv_heads = 8;
  spec.head_dim = 128;
  spec.ffn = 4096;
  spec.vocab = 32000;
  spec.sequence = 2048;
  spec.attention = crds::AttentionKind::kFlash;
  crds::TrainingSpec training;
  training.precision = crds::Precision::kBF16;
  training.activation_checkpointing = checkpointing;
  const Result<ForwardGraph> graph = lower_transformer(spec, training, {});
  const KernelTimes times = *KernelTimes::of(*GpuCatalog::built_in().find("A100-80GB"), training);
  return stage_time(*graph, times, {.batch = 1, .fusion = fusion, .checkpointing = checkpointing});
}

double of(const StageTime& stage, Spent spent) {
  return stage.spent[static_cast<std::size_t>(spent)];
}

using enum crds::ActivationCheckpointing;

TEST(StageTime, PartsAreThoseOfTheUnits) {
  const StageTime stage = time_of(kFull, 4);
  double units = 0;
  for (const auto& [id, unit] : stage.units) {
    units += unit.forward + unit.backward;
  }
  EXPECT_NEAR(stage.seconds() - of(stage, Spent::kLaunch), units, 1e-12);
}

TEST(StageTime, IsLinearInEqualLayers) {
  const auto busy = [](std::int64_t layers) {
    const StageTime stage = time_of(kFull, layers);
    return stage.seconds() - of(stage, Spent::kLaunch);
  };
  const double two = busy(2);
  const double four = busy(4);
  const double six = busy(6);
  EXPECT_NEAR(six - four, four - two, 1e-12);
}

TEST(StageTime, CheckpointingRecomputesForward) {
  EXPECT_DOUBLE_EQ(of(time_of(kNone, 4), Spent::kRecompute), 0);
  const double selective = of(time_of(kSelective, 4), Spent::kRecompute);
  const double full = of(time_of(kFull, 4), Spent::kRecompute);
  EXPECT_GT(selective, 0);
  EXPECT_GT(of(time_of(kSelectiveHalf, 4), Spent::kRecompute), selective);
  EXPECT_GT(full, of(time_of(kSelectiveHalf, 4), Spent::kRecompute));
}

TEST(StageTime, NormsAndTheActivationOfExpertsAreModulesThatCanBeRecomputed) {
  TransformerSpec spec;
  spec.layers = 2;
  spec.hidden = spec.expert_ffn = 1024;
  spec.heads = spec.kv_heads = 8;
  spec.head_dim = 128;
  spec.experts = 8;
  spec.experts_per_token = 2;
  spec.gated = true;
  spec.vocab = 32000;
  spec.sequence = 2048;
  crds::TrainingSpec training;
  training.activation_checkpointing = kPerModule;
  const KernelTimes times = *KernelTimes::of(*GpuCatalog::built_in().find("A100-80GB"), training);
  const auto recomputed = [&](const std::vector<std::string>& modules) {
    training.checkpoint_modules = modules;
    const Result<ForwardGraph> graph = lower_transformer(spec, training, {});
    EXPECT_TRUE(graph.ok()) << to_string(graph.error());
    return of(stage_time(*graph, times, {.checkpointing = kPerModule}), Spent::kRecompute);
  };
  const double norms = recomputed({"layers.*.attention_norm", "layers.*.mlp_norm"});
  const double activation = recomputed({"layers.*.mlp.experts.act"});
  EXPECT_GT(norms, 0);
  EXPECT_GT(activation, 0);
  EXPECT_GT(recomputed({"layers.*"}), 2 * (norms + activation)) << "products too";
}

TEST(StageTime, ExpertsAreCountedApart) {
  ForwardGraph graph;
  graph.add_parameter("experts", {fixed(8), fixed(64), fixed(32)}, ElementType::kBF16);
  graph.add_expert_parameters("expert", {fixed(64), fixed(32)}, ElementType::kBF16, 8);
  graph.add_parameter("w", {fixed(64), fixed(32)}, ElementType::kBF16);
  const KernelTimes times = *KernelTimes::of(*GpuCatalog::built_in().find("A100-80GB"), crds::TrainingSpec());
  const StageTime stage = stage_time(graph, times, {});
  EXPECT_DOUBLE_EQ(stage.units.at(-1).expert_trained, 2 * 8 * 64 * 32);
  EXPECT_DOUBLE_EQ(stage.units.at(-1).trained, 64 * 32);
}

TEST(StageTime, FusedOperatorsMoveLess) {
  EXPECT_LT(of(time_of(kNone, 4, Fusion::kCompiled), Spent::kMemory), of(time_of(kNone, 4), Spent::kMemory));
  EXPECT_DOUBLE_EQ(of(time_of(kNone, 4, Fusion::kCompiled), Spent::kMatrix),
                   of(time_of(kNone, 4), Spent::kMatrix));
}

TEST(StageTime, TheGpuWaitsForTheCpuBetweenShortKernels) {
  const auto graph_of = [](std::int64_t width) {
    ForwardGraph graph;
    const Shape shape = {per_sample(1), fixed(width)};
    TensorId x = graph.add_parameter("x", {fixed(1), fixed(width)}, ElementType::kFP32);
    constexpr int kOperators = 100;
    for (int i = 0; i < kOperators; ++i) {
      x = graph.apply(OpKind::kRelu, "relu", {x}, shape, ElementType::kFP32);
    }
    return graph;
  };
  const KernelTimes times = *KernelTimes::of(*GpuCatalog::built_in().find("A100-80GB"), crds::TrainingSpec());
  const StageTime narrow = stage_time(graph_of(64), times, {});
  EXPECT_NEAR(narrow.seconds(), 200 * 17.5e-6, 1e-9) << "100 operators forward, 100 backward";
  EXPECT_GT(of(narrow, Spent::kLaunch), 0.9 * narrow.seconds());
  const StageTime wide = stage_time(graph_of(1 << 28), times, {});
  EXPECT_DOUBLE_EQ(of(wide, Spent::kLaunch), 0);
}

TEST(StageTime, ChargesItsOperatorsToTheBudget) {
  ForwardGraph graph;
  const TensorId x = graph.add_input("x", {per_sample(1), fixed(64)}, ElementType::kFP32);
  graph.apply(OpKind::kRelu, "relu", {x}, {per_sample(1), fixed(64)}, ElementType::kFP32);
  const KernelTimes times = *KernelTimes::of(*GpuCatalog::built_in().find("A100-80GB"), crds::TrainingSpec());
  Budget budget;
  const std::uint64_t before = budget.work_done();
  stage_time(graph, times, {.budget = &budget});
  EXPECT_EQ(budget.work_done(), before + 1 + 2) << "an operator and two tensors";
}

TEST(StageTime, ComputationHidesSomeOfTheTensorGroupsExchanges) {
  ForwardGraph graph;
  const Shape shape = {per_sample(1), fixed(1 << 20)};
  const TensorId x = graph.add_input("x", shape, ElementType::kFP32);
  graph.apply(OpKind::kAllReduce, "reduce", {x}, shape, ElementType::kFP32);
  const KernelTimes times = *KernelTimes::of(*GpuCatalog::built_in().find("A100-80GB"), crds::TrainingSpec());
  StageOptions options{.tensor = group_of(8, 1, 8), .links = {.intra = 300e9, .inter = 25e9}};
  const double exposed = of(stage_time(graph, times, options), Spent::kTensor);
  options.overlaps_tensor = true;
  EXPECT_DOUBLE_EQ(of(stage_time(graph, times, options), Spent::kTensor),
                   exposed * occupied_share(options.tensor));
}

TEST(StageTime, EachPassAloneWaitsForTheCpuThatLaunchesIt) {
  ForwardGraph graph;
  const Shape small = {per_sample(1), fixed(64)};
  const TensorId w = graph.add_parameter("w", {fixed(64), fixed(64)}, ElementType::kFP32);
  const TensorId x = graph.add_input("x", small, ElementType::kFP32);
  graph.apply(OpKind::kRelu, "relu", {graph.apply(OpKind::kLinear, "fc", {x, w}, small, ElementType::kFP32)},
              small, ElementType::kFP32);
  const KernelTimes times = *KernelTimes::of(*GpuCatalog::built_in().find("A100-80GB"), crds::TrainingSpec());
  const StageTime stage = stage_time(graph, times, {});
  EXPECT_EQ(stage.forward_kernels, 2);
  EXPECT_EQ(stage.backward_kernels, 2) << "x needs no gradient";
  EXPECT_DOUBLE_EQ(stage.forward_seconds() + stage.backward_seconds(), stage.seconds());
  const StageTime large = stage_time(graph, times, {.batch = 1 << 22});
  EXPECT_DOUBLE_EQ(large.forward_seconds(), large.units.at(-1).forward);
  EXPECT_DOUBLE_EQ(large.backward_seconds(), large.units.at(-1).backward);
}

}  // namespace
}  // namespace plimsoll::estimator
