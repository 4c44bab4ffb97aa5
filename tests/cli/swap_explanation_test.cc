#include "cli/swap_explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plimsoll::cli {
namespace {

using estimator::ConsideredKind;
using estimator::SwapMode;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Chosen: vPP with microbatches of 2. vDP is slower, microbatches of 4 fit nowhere, and those of 1 cannot be faster.
estimator::PlannedSwap planned() {
  const auto kind = [](SwapMode mode, std::int64_t microbatch, bool prefetch) {
    return estimator::SwapKind{.mode = mode,
                               .gpus = 2,
                               .samples = 8,
                               .forward_microbatch = microbatch,
                               .backward_microbatch = microbatch,
                               .prefetch = prefetch};
  };
  estimator::PlannedSwap planned;
  planned.plan.mode = SwapMode::kVPP;
  planned.plan.gpus = 2;
  planned.plan.samples = 8;
  planned.plan.forward_microbatch = planned.plan.backward_microbatch = 2;
  planned.plan.prefetch = true;
  planned.seconds = 12;
  planned.considered = {
      {.kind = kind(SwapMode::kVPP, 4, false), .least = {.gpus = 8, .links = 10, .updates = 0.5}},
      {.kind = kind(SwapMode::kVPP, 2, true),
       .least = {.gpus = 11, .links = 10, .updates = 0.5},
       .seconds = 12},
      {.kind = kind(SwapMode::kVDP, 2, true),
       .least = {.gpus = 11.5, .links = 10, .updates = 0.5},
       .seconds = 14},
      {.kind = kind(SwapMode::kVPP, 1, true), .least = {.gpus = 13, .links = 10, .updates = 0.5}}};
  return planned;
}

TEST(SwapExplanation, SaysWhatBecameOfEachKind) {
  const std::string text = swap_explanation_text(planned());
  EXPECT_THAT(text, ContainsRegex("links +10 s"));
  EXPECT_THAT(text, HasSubstr("the links to the host bound the iteration"));
  EXPECT_THAT(text, ContainsRegex("vPP +4 +off +10 s +- +none fits a GPU"));
  EXPECT_THAT(text, ContainsRegex("vPP +2 +on +11 s +12 s +chosen"));
  EXPECT_THAT(text, ContainsRegex("vDP +2 +on +11.5 s +14 s +slower"));
  EXPECT_THAT(text, ContainsRegex("vPP +1 +on +13 s +- +its bound exceeds the chosen plan"));
  EXPECT_THAT(text, Not(HasSubstr("in all")));
}

TEST(SwapExplanation, NamesWhatBoundsTheIteration) {
  estimator::PlannedSwap other = planned();
  other.considered.front().least = {.gpus = 11, .links = 10, .updates = 1};
  EXPECT_THAT(swap_explanation_text(other), HasSubstr("the GPUs bound the iteration"));
  other.considered.front().least = {.gpus = 11, .links = 10, .updates = 20};
  EXPECT_THAT(swap_explanation_text(other), HasSubstr("the optimizer on the host bounds the iteration"));
}

// The chosen plan is shown wherever it stands in the order of the bounds.
TEST(SwapExplanation, AmongManyKindsTheChosenOneIsShown) {
  estimator::PlannedSwap many = planned();
  const ConsideredKind other = many.considered.front();
  many.considered.insert(many.considered.begin(), 100, other);
  const std::string text = swap_explanation_text(many);
  EXPECT_THAT(text, HasSubstr("chosen"));
  EXPECT_THAT(text, HasSubstr("and others, 104 in all"));
}

TEST(SwapExplanation, OfProgramsHasAllKindsAndNullWhereNoPlanWasSimulated) {
  const Json json = swap_explanation_json(planned());
  EXPECT_DOUBLE_EQ(json["leastSeconds"]["links"].asDouble(), 10);
  ASSERT_EQ(json["considered"].size(), 4U);
  EXPECT_TRUE(json["considered"][0]["iterationSeconds"].isNull());
  EXPECT_DOUBLE_EQ(json["considered"][1]["iterationSeconds"].asDouble(), 12);
  EXPECT_EQ(json["considered"][1]["microbatch"]["backward"].asInt(), 2);
}

}  // namespace
}  // namespace plimsoll::cli
