#include "estimator/spec/module_names.h"

#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

TEST(ModuleNames, AModuleOfALayerHasThePathThatTransformersGivesIt) {
  EXPECT_EQ(path_of(*module_names("llama"), "layers.3.attention.q"), "model.layers.3.self_attn.q_proj");
  EXPECT_EQ(path_of(*module_names("gpt2"), "layers.0.mlp.down"), "transformer.h.0.mlp.c_proj");
  EXPECT_EQ(path_of(*module_names("opt"), "layers.11.mlp.up"), "model.decoder.layers.11.fc1");
  EXPECT_EQ(path_of(*module_names("bert"), "head"), "cls.predictions.decoder");
}

// Llama multiplies act(gate_proj(x)) by up_proj(x).
TEST(ModuleNames, TheActivatedHalfOfAGatedNetworkIsGateProj) {
  EXPECT_EQ(path_of(*module_names("llama"), "layers.0.mlp.up"), "model.layers.0.mlp.gate_proj");
  EXPECT_EQ(path_of(*module_names("llama"), "layers.0.mlp.gate"), "model.layers.0.mlp.up_proj");
}

TEST(ModuleNames, ATransformerOfGivenSizesHasTheNamesOfLlama) {
  EXPECT_EQ(path_of(*module_names(""), "layers.0.attention.v"), "model.layers.0.self_attn.v_proj");
}

TEST(ModuleNames, AModuleThatTransformersDoesNotHaveHasNoPath) {
  EXPECT_EQ(path_of(*module_names("gpt2"), "layers.0.attention.q"), "");
  EXPECT_EQ(path_of(*module_names("gpt2"), "layers.0"), "");
  EXPECT_EQ(module_names("no_such_family"), nullptr);
}

// Experts and routers are modules of their own kind since transformers 5, which peft does not adapt.
TEST(ModuleNames, RoutersAndNormsAreNotLinear) {
  EXPECT_TRUE(is_linear(*module_names("mixtral"), "layers.0.attention.q"));
  EXPECT_FALSE(is_linear(*module_names("mixtral"), "layers.0.mlp.router"));
  EXPECT_FALSE(is_linear(*module_names("mixtral"), "layers.0.mlp_norm"));
  EXPECT_FALSE(is_linear(*module_names("mixtral"), "embed_tokens"));
}

TEST(ModuleNames, AKeyMatchesAWholePathOrItsEndAfterADot) {
  EXPECT_TRUE(path_matches("c_proj", "transformer.h.0.mlp.c_proj"));
  EXPECT_TRUE(path_matches("mlp.c_proj", "transformer.h.0.mlp.c_proj"));
  EXPECT_FALSE(path_matches("proj", "transformer.h.0.mlp.c_proj"));
  EXPECT_TRUE(path_matches("lm_head", "lm_head"));
  EXPECT_FALSE(path_matches("lm_head.x", "lm_head"));
}

TEST(ModuleNames, TheListOfFamiliesHasEachByItsName) {
  const std::string families = families_with_module_names();
  EXPECT_TRUE(families.starts_with("bert, bloom")) << families;
  EXPECT_NE(families.find("qwen3_moe"), std::string::npos);
}

}  // namespace
}  // namespace plimsoll::estimator
