#include "estimator/spec/transformer_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace plimsoll::estimator {
namespace {

using ::testing::HasSubstr;

crds::TransformerModel small() {
  crds::TransformerModel model;
  model.layers = 4;
  model.hidden = 128;
  model.heads = 8;
  model.ffn = 256;
  model.vocab = 512;
  model.sequence_length = 64;
  return model;
}

TEST(TransformerSpec, ConfigsThatCannotBeAreNamed) {
  const std::pair<const char*, const char*> wrong[] = {
      {"", "JSON"},
      {"[1]", "object"},
      {"{\"model_type\": 3}", "model_type"},
      {"{}", "model_type is missing"},
      {R"({"model_type": "perceiver"})", "known are llama"},
      {R"({"model_type": "llama"})", "num_hidden_layers"},
      {R"({"model_type": "gpt2", "n_layer": "many"})", "n_layer must be an integer"},
      {R"({"model_type": "gpt2", "n_layer": 1e30})", "n_layer must be an integer"},
      {R"({"model_type": "gpt2", "n_layer": -1})", "num_hidden_layers"},
      {R"({"model_type": "gpt2", "n_head": 0})", "num_attention_heads"},
      {R"({"model_type": "gpt2", "activation_function": "xielu"})", "xielu"},
      {R"({"model_type": "gpt2", "n_positions": 16})", "positions"},
      {R"({"model_type": "t5", "d_model": 9223372036854775807})", "hidden_size"},
  };
  for (const auto& [config, message] : wrong) {
    const Result<TransformerSpec> spec = spec_of_config(config, 128, crds::AttentionKind::kSDPA);
    ASSERT_FALSE(spec.ok()) << config;
    EXPECT_EQ(spec.error().code, ErrorCode::kInvalid) << config;
    EXPECT_THAT(spec.error().message, HasSubstr(message)) << config;
  }
}

// An encoder and its decoder had one length, whatever a job said.
TEST(TransformerSpec, OnlyAnEncoderBesideADecoderReadsOtherTokensThanItWrites) {
  crds::TransformerModel model = small();
  model.encoder_sequence_length = 512;
  const auto refused = [&] {
    const Result<TransformerSpec> spec = transformer_spec(model);
    return spec ? std::string("accepted") : spec.error().message;
  };
  EXPECT_THAT(refused(), HasSubstr("encoderSeqLen is for an EncoderDecoder and T5"));
  model.architecture = crds::TransformerArchitecture::kEncoderDecoder;
  Result<TransformerSpec> spec = transformer_spec(model);
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->encoder_sequence, 512);
  EXPECT_EQ(spec->sequence, 64);
  model = {};
  model.sequence_length = 32;
  model.encoder_sequence_length = 128;
  model.config = R"({"model_type": "t5"})";
  spec = transformer_spec(model);
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->encoder_sequence, 128);
  model.config = R"({"model_type": "whisper", "vocab_size": 500})";
  EXPECT_THAT(refused(), HasSubstr("not for a model whose config.json says what its encoder reads"));
  model.config = R"({"model_type": "gpt2"})";
  EXPECT_THAT(refused(), HasSubstr("encoderSeqLen is for an EncoderDecoder and T5"));
}

TEST(TransformerSpec, HeadsThatAreNotGivenFollowFromTheOthers) {
  crds::TransformerModel model = small();
  Result<TransformerSpec> spec = transformer_spec(model);
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->kv_heads, 8);
  EXPECT_EQ(spec->head_dim, 16);
  model.hidden = 100;
  model.head_dim = 16;  // then the hidden size need not divide
  spec = transformer_spec(model);
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->head_dim, 16);
}

TEST(TransformerSpec, AnEncoderIsBertAndADecoderPredictsTheNextToken) {
  crds::TransformerModel model = small();
  EXPECT_EQ(transformer_spec(model)->head, Head::kCausal);
  EXPECT_EQ(transformer_spec(model)->norm_place, NormPlace::kBefore);
  model.architecture = crds::TransformerArchitecture::kEncoder;
  const Result<TransformerSpec> encoder = transformer_spec(model);
  ASSERT_TRUE(encoder.ok());
  EXPECT_EQ(encoder->head, Head::kMasked);
  EXPECT_EQ(encoder->norm_place, NormPlace::kAfterSum);
  EXPECT_TRUE(encoder->head_bias);
  model.architecture = crds::TransformerArchitecture::kEncoderDecoder;
  const Result<TransformerSpec> both = transformer_spec(model);
  ASSERT_TRUE(both.ok());
  EXPECT_TRUE(both->encoder_decoder);
  EXPECT_EQ(both->encoder_layers, 4);
  EXPECT_EQ(both->layers, 4);
}

TEST(TransformerSpec, FeedForwardNamesAnActivationAndAGate) {
  using enum crds::FeedForward;
  const auto of = [](crds::FeedForward kind) {
    crds::TransformerModel model = small();
    model.activation = kind;
    const TransformerSpec spec = *transformer_spec(model);
    return std::pair(spec.activation, spec.gated);
  };
  EXPECT_EQ(of(kSwiGLU), std::pair(Activation::kSilu, true));
  EXPECT_EQ(of(kGEGLU), std::pair(Activation::kGelu, true));
  EXPECT_EQ(of(kGELU), std::pair(Activation::kGelu, false));
  EXPECT_EQ(of(kReLU), std::pair(Activation::kRelu, false));
}

TEST(TransformerSpec, MegatronHasOneMatrixWhereTransformersHasSeveral) {
  crds::TransformerModel model = small();
  model.activation = crds::FeedForward::kSwiGLU;
  const TransformerSpec swiglu = as_megatron(*transformer_spec(model));
  EXPECT_EQ(swiglu.fused_qkv, FusedQkv::kSplit);
  EXPECT_EQ(swiglu.rms_form, RmsForm::kFused);
  EXPECT_TRUE(swiglu.fused_gate && swiglu.fused_activation);
  model.activation = crds::FeedForward::kGELU;
  const TransformerSpec gelu = as_megatron(*transformer_spec(model));
  EXPECT_FALSE(gelu.fused_gate || gelu.fused_activation);
  TransformerSpec latent = *transformer_spec(model);
  latent.kv_rank = 8;
  EXPECT_EQ(as_megatron(latent).fused_qkv, FusedQkv::kNone);
}

TEST(TransformerSpec, BoundsAreInclusive) {
  constexpr std::int64_t kMaxWidth = std::int64_t{1} << 24;
  crds::TransformerModel model = small();
  model.ffn = kMaxWidth;
  EXPECT_TRUE(transformer_spec(model).ok());
  model.ffn = kMaxWidth + 1;
  const Result<TransformerSpec> spec = transformer_spec(model);
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(spec.error().message, HasSubstr("ffn must be from 1 to 16777216, is 16777217"));
}

TEST(TransformerSpec, DropoutIsAProbabilityBelowOne) {
  for (const double bad : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()}) {
    crds::TransformerModel model = small();
    model.dropout = bad;
    const Result<TransformerSpec> spec = transformer_spec(model);
    ASSERT_FALSE(spec.ok()) << bad;
    EXPECT_THAT(spec.error().message, HasSubstr("dropout")) << bad;
  }
}

TEST(TransformerSpec, AConfigTakesTheSequenceAndTheAttentionOfTheModel) {
  crds::TransformerModel model;
  model.config = R"({"model_type": "gpt2"})";
  model.sequence_length = 1024;
  model.attention = crds::AttentionKind::kEager;
  model.layers = 99;  // the config has its own sizes
  const Result<TransformerSpec> spec = transformer_spec(model);
  ASSERT_TRUE(spec.ok()) << to_string(spec.error());
  EXPECT_EQ(spec->sequence, 1024);
  EXPECT_EQ(spec->attention, crds::AttentionKind::kEager);
  EXPECT_EQ(spec->layers, 12);
  model.sequence_length = 1025;  // GPT-2 has 1024 learned positions
  EXPECT_FALSE(transformer_spec(model).ok());
}

}  // namespace
}  // namespace plimsoll::estimator
