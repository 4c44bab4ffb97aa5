#include "base/words.h"

#include <gtest/gtest.h>

namespace plimsoll {
namespace {

TEST(ClosestWord, FindsMisspellingsAndNothingElse) {
  const std::vector<std::string> known = {"--trainers", "--tables", "--topology"};
  EXPECT_EQ(closest_word("--trainer", known), "--trainers");
  EXPECT_EQ(closest_word("--TABELS", known), "--tables");
  EXPECT_EQ(closest_word("--something-else", known), "");
  EXPECT_EQ(closest_word(std::string(100'000, '-'), known), "");
  EXPECT_EQ(closest_word("--x", {}), "");
  EXPECT_EQ(closest_word("Z9", {"L4", "T4"}), "") << "no letter in common";
  EXPECT_EQ(closest_word("", {"L4"}), "");
}

TEST(ClosestWord, MayBeTheBeginningOfALongerOne) {
  EXPECT_EQ(closest_word("batchSize", {"precision", "batchSizePerTrainer"}), "batchSizePerTrainer");
  EXPECT_EQ(closest_word("bat", {"precision", "batchSizePerTrainer"}), "") << "too short to tell";
  EXPECT_EQ(did_you_mean("optimiser", {"precision", "optimizer"}), "; did you mean optimizer?");
  EXPECT_EQ(did_you_mean("colour", {"precision"}), "");
}

TEST(Words, AreEqualInAnyCase) {
  EXPECT_TRUE(equal_ignoring_case("FSDP2", "fsdp2"));
  EXPECT_FALSE(equal_ignoring_case("FSDP2", "FSDP"));
  EXPECT_TRUE(equal_ignoring_case("", ""));
}

TEST(Words, OfALongListAreCounted) {
  EXPECT_EQ(listed({}), "");
  EXPECT_EQ(listed({"a", "b"}, 1), "a, b") << "one more than the limit is as short as its count";
  EXPECT_EQ(listed({"a", "b", "c", "d"}, 2), "a, b and 2 more");
}

TEST(Words, OneIsSingular) {
  EXPECT_EQ(counted(1, "trainer"), "1 trainer");
  EXPECT_EQ(counted(0, "trainer"), "0 trainers");
  EXPECT_EQ(counted(8, "trainer"), "8 trainers");
}

TEST(Words, ASlipIsOfTwoLettersAtMost) {
  const std::vector<std::string> known = {"num_hidden_layers", "head_dim", "n_layer", "vocab"};
  EXPECT_EQ(slip_of("num_hiden_layers", known), "num_hidden_layers");
  EXPECT_EQ(slip_of("num_hidden_layer", known), "num_hidden_layers");
  EXPECT_EQ(slip_of("n_layers", known), "n_layer");
  EXPECT_EQ(slip_of("num_layers", known), "") << "another word";
  EXPECT_EQ(slip_of("rope_dim", known), "") << "four letters";
  EXPECT_EQ(slip_of("vocat", known), "") << "too short to be sure";
  EXPECT_EQ(slip_of(std::string(100, 'x'), {std::string(100, 'x')}), "");
}

}  // namespace
}  // namespace plimsoll
