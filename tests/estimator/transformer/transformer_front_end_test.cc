#include "estimator/transformer/transformer_front_end.h"

#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

TEST(TransformerFrontEnd, PatchesAreTokens) {
  const TransformerSpec spec = *spec_of_config(R"({"model_type": "vit", "image_size": 32, "patch_size": 8})",
                                               17, crds::AttentionKind::kSDPA);
  const crds::TrainingSpec training;
  const TransformerPart part;
  ModelBuilder builder(crds::Precision::kFP32);
  ModulePatterns patterns({});
  TransformerContext context{spec, training, part, builder, patterns};
  const TensorId x = TransformerFrontEnd(context).patches("");
  EXPECT_EQ(builder.graph().bytes(x, 3).count, 3 * 17 * 768 * 4);
  const std::int64_t convolution = 768 * 3 * 8 * 8 + 768;
  EXPECT_EQ(builder.graph().parameter_bytes().count, 4 * (convolution + 768 + 17 * 768));
}

TEST(TransformerFrontEnd, TheSecondConvolutionHalvesTheFrames) {
  const TransformerSpec spec = spec_of_config(R"({"model_type": "whisper", "max_source_positions": 50})", 10,
                                              crds::AttentionKind::kSDPA)
                                   ->towers.front();
  const crds::TrainingSpec training;
  const TransformerPart part;
  ModelBuilder builder(crds::Precision::kFP32);
  ModulePatterns patterns({});
  TransformerContext context{spec, training, part, builder, patterns};
  const TensorId x = TransformerFrontEnd(context).frames("");
  EXPECT_EQ(builder.graph().bytes(x, 2).count, 2 * 50 * 384 * 4);
  const std::int64_t convolutions = 384 * 80 * 3 + 384 + 384 * 384 * 3 + 384;
  EXPECT_EQ(builder.graph().parameter_bytes().count, 4 * (convolutions + 50 * 384));
}

}  // namespace
}  // namespace plimsoll::estimator
