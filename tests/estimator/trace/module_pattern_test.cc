#include "estimator/trace/module_pattern.h"

#include <gtest/gtest.h>

namespace plimsoll::estimator {
namespace {

TEST(ModulePattern, AStarIsAnyOneName) {
  EXPECT_TRUE(module_matches("layers.*.mlp", "layers.3.mlp"));
  EXPECT_TRUE(module_matches("layers.3.mlp", "layers.3.mlp"));
  EXPECT_TRUE(module_matches("*", "head"));
  EXPECT_FALSE(module_matches("layers.*.mlp", "layers.3.4.mlp"));
  EXPECT_FALSE(module_matches("layers.*", "layers"));
  EXPECT_FALSE(module_matches("layers.*", "layers.3.mlp"));
  EXPECT_FALSE(module_matches("layers.3*", "layers.31")) << "not a part of a name";
  EXPECT_FALSE(module_matches("layers.3", "layers.31"));
}

TEST(ModulePattern, AnEndMatchesTheLastNames) {
  EXPECT_TRUE(module_ends_with("*.up", "layers.3.mlp.up"));
  EXPECT_TRUE(module_ends_with("up", "layers.3.mlp.up"));
  EXPECT_TRUE(module_ends_with("layers.*.up", "layers.3.up"));
  EXPECT_FALSE(module_ends_with("up", "layers.3.mlp.setup"));
  EXPECT_FALSE(module_ends_with("mlp", "layers.3.mlp.up"));
  EXPECT_FALSE(module_ends_with("*.up", "up")) << "the path has fewer names than the pattern";
  EXPECT_FALSE(module_ends_with("*", ""));
  EXPECT_TRUE(module_ends_with("layers.*.mlp.up", "layers.3.mlp.up"));
  EXPECT_TRUE(module_ends_with("up", "up"));
  EXPECT_FALSE(module_ends_with("*.up", "up"));
  EXPECT_FALSE(module_ends_with("up", "layers.3.mlp.gate_up"));
  EXPECT_FALSE(module_ends_with("up", ""));
}

TEST(ModulePattern, APrefixEndsWithTheFirstNumber) {
  EXPECT_EQ(numbered_prefix("layers.3.mlp"), "layers.3");
  EXPECT_EQ(numbered_prefix("encoder.layers.12"), "encoder.layers.12");
  EXPECT_EQ(numbered_prefix("3.mlp.0"), "3");
  EXPECT_EQ(numbered_prefix("layer3.mlp"), "");
  EXPECT_EQ(numbered_prefix(""), "");
}

TEST(ModulePatterns, RememberWhichHaveMatched) {
  const std::vector<std::string> list = {"layers.*.up", "layers.0.*", "head"};
  ModulePatterns patterns(list);
  EXPECT_EQ(patterns.unused(), &list.front());
  EXPECT_FALSE(patterns.matches("norm"));
  EXPECT_TRUE(patterns.matches("layers.0.up"));  // by the first two
  ASSERT_NE(patterns.unused(), nullptr);
  EXPECT_EQ(*patterns.unused(), "head");
  EXPECT_FALSE(patterns.matches("model.head"));
  EXPECT_TRUE(patterns.matches_end("model.head"));
  EXPECT_EQ(patterns.unused(), nullptr);
}

TEST(ModulePatterns, NoneLeaveNothingUnused) {
  const std::vector<std::string> none;
  ModulePatterns patterns(none);
  EXPECT_FALSE(patterns.matches("layers.0"));
  EXPECT_EQ(patterns.unused(), nullptr);
}

}  // namespace
}  // namespace plimsoll::estimator
