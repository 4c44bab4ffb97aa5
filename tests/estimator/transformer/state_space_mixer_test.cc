#include "estimator/transformer/state_space_mixer.h"

#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

TEST(StateSpaceMixer, KeepsAStateForEachToken) {
  const TransformerSpec spec = *spec_of_config(
      R"({"model_type": "mamba", "hidden_size": 64, "state_size": 8})", 16, crds::AttentionKind::kSDPA);
  const crds::TrainingSpec training;
  const TransformerPart part;
  ModelBuilder builder(crds::Precision::kFP32);
  ModulePatterns patterns({});
  TransformerContext context{spec, training, part, builder, patterns};
  const TensorId x =
      builder.graph().add_input("x", {per_sample(1), fixed(16), fixed(64)}, ElementType::kFP32);
  const TensorId y = StateSpaceMixer(context).run("mixer", x);
  const ForwardGraph& graph = builder.graph();
  EXPECT_EQ(graph.bytes(y, 2).count, 2 * 16 * 64 * 4);
  const std::int64_t inner = 128;
  const std::int64_t rank = 4;
  EXPECT_EQ(graph.parameter_bytes().count / 4, 64 * 2 * inner + inner * 4 + inner + inner * (rank + 16) +
                                                   inner * rank + inner + inner * 8 + inner + inner * 64);
  std::int64_t scans = 0;
  for (std::int32_t i = 0; i < graph.op_count(); ++i) {
    if (graph.op(i).kind == OpKind::kSelectiveScan) {
      ++scans;
      EXPECT_EQ(graph.bytes(graph.op(i).inputs[0], 1).count, 16 * inner * 8 * 4);
    }
  }
  EXPECT_EQ(scans, 1);
}

}  // namespace
}  // namespace plimsoll::estimator
