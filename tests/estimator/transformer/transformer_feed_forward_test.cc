#include "estimator/transformer/transformer_feed_forward.h"

#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

TransformerSpec small() {
  crds::TransformerModel model;
  model.layers = 1;
  model.hidden = 64;
  model.heads = 4;
  model.ffn = 128;
  model.vocab = 100;
  model.sequence_length = 16;
  return *transformer_spec(model);
}

ForwardGraph feed(const TransformerSpec& spec, bool sparse = false,
                  crds::Precision precision = crds::Precision::kFP32) {
  const crds::TrainingSpec training;
  const TransformerPart part;
  ModelBuilder builder(precision);
  ModulePatterns patterns({});
  TransformerContext context{spec, training, part, builder, patterns};
  const TensorId x =
      builder.graph().add_input("x", {per_sample(1), fixed(16), fixed(64)}, ElementType::kFP32);
  TransformerFeedForward(context).run("mlp", x, sparse);
  return std::move(builder).graph();
}

TEST(TransformerFeedForward, AFusedGateHasTheSameParameters) {
  TransformerSpec gated = small();
  gated.gated = true;
  TransformerSpec fused = gated;
  fused.fused_gate = true;
  EXPECT_EQ(feed(gated).parameter_bytes().count, 3 * 64 * 128 * 4);
  EXPECT_EQ(feed(fused).parameter_bytes(), feed(gated).parameter_bytes());
  EXPECT_LT(feed(fused).op_count(), feed(gated).op_count() + 1);
  TransformerSpec one_kernel = fused;
  one_kernel.fused_activation = true;
  EXPECT_EQ(feed(one_kernel).parameter_bytes(), feed(gated).parameter_bytes());
  EXPECT_LT(feed(one_kernel).op_count(), feed(fused).op_count()) << "activation and product";
}

TEST(TransformerFeedForward, ExpertsAreARouterAndTheirMatrices) {
  TransformerSpec spec = small();
  spec.experts = 4;
  spec.experts_per_token = 2;
  spec.expert_ffn = 32;
  spec.gated = true;
  EXPECT_EQ(feed(spec, true).parameter_bytes().count, (4 * 64 + 4 * 3 * 64 * 32) * 4);
  spec.mlp_bias = true;
  EXPECT_EQ(feed(spec, true).parameter_bytes().count, (4 * 64 + 4 * 3 * 64 * 32 + 4 * (2 * 32 + 64)) * 4);
}

// Mixtral under autocast took 12 % more on an H100 than with half copies.
TEST(TransformerFeedForward, GroupedExpertsStayInFloatUnderAutocast) {
  TransformerSpec spec = small();
  spec.experts = 4;
  spec.experts_per_token = 2;
  spec.expert_ffn = 32;
  const auto product = [&](crds::Precision precision) {
    const ForwardGraph graph = feed(spec, true, precision);
    for (std::int32_t i = 0; i < graph.op_count(); ++i) {
      const Op op = graph.op(i);
      if (op.kind == OpKind::kLinear && graph.name_of(op.outputs[0]) == "mlp.experts.up") {
        return graph.tensor(op.outputs[0]).type;
      }
    }
    return ElementType::kInt64;
  };
  EXPECT_EQ(product(crds::Precision::kBF16Mixed), ElementType::kFP32);
  EXPECT_EQ(product(crds::Precision::kBF16), ElementType::kBF16);
  spec.split_experts = true;
  EXPECT_EQ(product(crds::Precision::kBF16Mixed), ElementType::kBF16) << "linear layers";
}

}  // namespace
}  // namespace plimsoll::estimator
