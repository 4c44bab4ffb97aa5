#include "estimator/spec/encoder_families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

using ::testing::HasSubstr;

Result<TransformerSpec> read(const std::string& config, std::int64_t tokens) {
  return spec_of_config(config, tokens, crds::AttentionKind::kSDPA);
}

void expect_refused(const std::string& config, std::int64_t tokens, const std::string& text) {
  const Result<TransformerSpec> spec = read(config, tokens);
  ASSERT_FALSE(spec.ok()) << config;
  EXPECT_THAT(spec.error().message, HasSubstr(text));
}

TEST(EncoderFamilies, ViTsTokensFollowFromTheImage) {
  const Result<TransformerSpec> spec = read(R"({"model_type": "vit"})", 197);
  ASSERT_TRUE(spec.ok()) << to_string(spec.error());
  EXPECT_EQ(spec->sequence, 14 * 14 + 1);
  EXPECT_EQ(spec->head, Head::kClasses);
  EXPECT_EQ(spec->classes, 2);
  EXPECT_EQ(read(R"({"model_type": "vit", "id2label": {"0": "cat", "1": "dog", "2": "owl"}})", 197)->classes,
            3);
  EXPECT_EQ(read(R"({"model_type": "vit", "architectures": ["ViTModel"]})", 197)->head, Head::kEncoder);
  EXPECT_EQ(read(R"({"model_type": "vit", "image_size": [224, 448], "patch_size": [16, 32]})", 197)->sequence,
            197);
  expect_refused(R"({"model_type": "vit"})", 512, "seqLen must be 197");
}

TEST(EncoderFamilies, ViTsWrongSizesAreNamed) {
  expect_refused(R"({"model_type": "vit", "patch_size": 0})", 197, "patch_size must be from 1");
  expect_refused(R"({"model_type": "vit", "patch_size": 448})", 197, "patch_size must be from 1 to 224");
  expect_refused(R"({"model_type": "vit", "image_size": -1})", 197, "image_size must be at least 1");
  expect_refused(R"({"model_type": "vit", "image_size": [224]})", 197,
                 "image_size must be an integer or a list");
  expect_refused(R"({"model_type": "vit", "image_size": 900000000000})", 197, "image_size must be from");
  expect_refused(R"({"model_type": "vit", "id2label": 3})", 197, "id2label must be an object");
  expect_refused(R"({"model_type": "vit", "architectures": ["ViTForMaskedImageModeling"]})", 197,
                 "architectures");
}

TEST(EncoderFamilies, ClipHasATowerForImages) {
  const Result<TransformerSpec> spec = read(
      R"({"model_type": "clip", "vision_config": {"patch_size": 16}, "text_config": {"hidden_size": 256}})",
      77);
  ASSERT_TRUE(spec.ok()) << to_string(spec.error());
  EXPECT_EQ(spec->hidden, 256);
  EXPECT_EQ(spec->sequence, 77);
  ASSERT_EQ(spec->towers.size(), 1U);
  EXPECT_EQ(spec->towers[0].hidden, 768);
  EXPECT_EQ(spec->towers[0].sequence, 197);
  EXPECT_EQ(spec->activation, Activation::kQuickGelu);
  expect_refused(R"({"model_type": "clip"})", 78, "only 77 positions");
  expect_refused(R"({"model_type": "clip", "text_config": 3})", 77, "text_config must be an object");
  expect_refused(R"({"model_type": "clip", "vision_config": {"hidden_size": "x"}})", 77,
                 "config.vision_config: hidden_size must be an integer");
  expect_refused(R"({"model_type": "clip", "vision_config": {"num_attention_heads": 0}})", 77,
                 "num_attention_heads");
}

TEST(EncoderFamilies, WhispersEncoderHasItsOwnLength) {
  const Result<TransformerSpec> spec = read(R"({"model_type": "whisper"})", 100);
  ASSERT_TRUE(spec.ok()) << to_string(spec.error());
  EXPECT_EQ(spec->sequence, 100);
  EXPECT_EQ(spec->towers.at(0).sequence, 1500);
  EXPECT_FALSE(spec->key_bias);
  expect_refused(R"({"model_type": "whisper"})", 449, "only 448 positions");
  expect_refused(R"({"model_type": "whisper", "encoder_layerdrop": 0.1})", 100, "encoder_layerdrop");
  expect_refused(R"({"model_type": "whisper", "apply_spec_augment": true})", 100, "apply_spec_augment");
  expect_refused(R"({"model_type": "whisper", "num_mel_bins": 0})", 100, "num_mel_bins");
}

}  // namespace
}  // namespace plimsoll::estimator
