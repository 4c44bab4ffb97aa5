#include "estimator/swap/plan_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace plimsoll::estimator {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPlan =
    R"({"mode": "vPP", "gpus": 2, "batchSize": 8, "layers": 6, "microbatch": {"forward": 4, "backward": 2},
        "packs": {"forward": [0, 2], "backward": [0, 3, 5]}, "prefetch": true, "p2p": false, "iterationSeconds": 1})";

Result<SwapPlan> read(const std::string& text, std::size_t layers = 6) {
  const Result<JsonText> json = JsonText::parse(text);
  EXPECT_TRUE(json.ok()) << text;
  return read_swap_plan(json->root(), layers);
}

TEST(SwapPlanJson, APlanIsReadAsItIsWritten) {
  const Result<SwapPlan> plan = read(kPlan);
  ASSERT_TRUE(plan.ok()) << to_string(plan.error());
  const Result<SwapPlan> again = read(write_json(to_json(*plan, 6).json()));
  ASSERT_TRUE(again.ok()) << to_string(again.error());
  EXPECT_EQ(again->mode, SwapMode::kVPP);
  EXPECT_EQ(again->gpus, 2);
  EXPECT_EQ(again->samples, 8);
  EXPECT_EQ(again->forward_microbatch, 4);
  EXPECT_EQ(again->backward_microbatch, 2);
  EXPECT_EQ(again->forward_packs, plan->forward_packs);
  EXPECT_EQ(again->backward_packs, plan->backward_packs);
  EXPECT_TRUE(again->prefetch);
  EXPECT_FALSE(again->peer_to_peer);
  EXPECT_FALSE(again->mirrored);
  EXPECT_TRUE(again->resident.empty());
}

TEST(SwapPlanJson, LayersThatStayAreReadAsTheyAreWritten) {
  SwapPlan plan = *read(kPlan);
  plan.mirrored = true;
  plan.resident = {0, 5};
  const Result<SwapPlan> again = read(write_json(to_json(plan, 6).json()));
  ASSERT_TRUE(again.ok()) << to_string(again.error());
  EXPECT_TRUE(again->mirrored);
  EXPECT_EQ(again->resident, plan.resident);
  EXPECT_TRUE(again->resident_stashes.empty());
}

TEST(SwapPlanJson, StashesThatStayAreReadAsTheyAreWritten) {
  SwapPlan plan = *read(kPlan);
  plan.mode = SwapMode::kVDP;
  plan.resident_stashes = {3};
  const std::string text = write_json(to_json(plan, 6).json());
  const Result<SwapPlan> again = read(text);
  ASSERT_TRUE(again.ok()) << to_string(again.error());
  EXPECT_EQ(again->resident_stashes, plan.resident_stashes);
  for (const char* const wrong : {"{}", "3", "[6]", "[5]", "[0]", "[\"3\"]", "[3, 3]"}) {
    std::string changed = text;
    const std::string member = "\"residentStashes\":";
    const std::size_t begin = changed.find(member) + member.size();
    changed.replace(begin, changed.find(']', begin) + 1 - begin, wrong);
    ASSERT_FALSE(read(changed).ok()) << wrong;
    EXPECT_THAT(read(changed).error().message, HasSubstr("residentStashes must")) << wrong;
  }
}

TEST(SwapPlanJson, SaysWhatIdentifiesTheModelAndWhatFits) {
  PlannedSwap planned;
  planned.plan = *read(kPlan);
  planned.weights = {1_B, 2_B, 3_B, 4_B, 5_B, 6_B};
  planned.inputs = planned.weights;
  const JsonObject answer = to_json(planned, 6, 8_GiB);
  const JsonView json(answer.json());
  EXPECT_EQ(member(json, {"weightBytes"}).elements().size(), 6U);
  EXPECT_EQ(member(json, {"inputBytes"}).elements().size(), 6U);
  EXPECT_EQ(member(json, {"deviceBytes"}).integer(), (8_GiB).count);
  EXPECT_EQ(member(json, {"p2p"}).boolean(), false);
  EXPECT_TRUE(member(JsonView(to_json(planned, 6, Bytes{}).json()), {"deviceBytes"}).is_null());
}

TEST(SwapPlanJson, EachWrongMemberIsNamed) {
  const auto refusal = [](const std::string& from, const std::string& to) {
    std::string text = kPlan;
    text.replace(text.find(from), from.size(), to);
    const Result<SwapPlan> plan = read(text);
    return plan ? std::string() : plan.error().message;
  };
  EXPECT_THAT(refusal("\"vPP\"", "\"DP\""), HasSubstr("the plan's mode must be vDP or vPP"));
  EXPECT_THAT(refusal("\"vPP\"", "7"), HasSubstr("the plan's mode"));
  EXPECT_THAT(refusal("\"gpus\": 2", "\"gpus\": 0"),
              HasSubstr("the plan's gpus must be a whole number from 1"));
  EXPECT_THAT(refusal("\"gpus\": 2", "\"gpus\": 65"), HasSubstr("at most 64"));
  EXPECT_THAT(refusal("\"batchSize\": 8", "\"batchSize\": 8.5"),
              HasSubstr("batchSize must be a whole number"));
  EXPECT_THAT(refusal("\"forward\": 4", "\"forward\": 3"),
              HasSubstr("a microbatch of 3 must divide the 8 samples"));
  EXPECT_THAT(refusal("\"layers\": 6", "\"layers\": 7"), HasSubstr("of 7 layers, and the profile has 6"));
  EXPECT_THAT(refusal("[0, 2]", "{}"), HasSubstr("packs.forward must be an array"));
  EXPECT_THAT(refusal("[0, 2]", "[0, \"x\"]"), HasSubstr("packs.forward must have layers from 0 to 5"));
  EXPECT_THAT(refusal("[0, 2]", "[0, 6]"), HasSubstr("packs.forward must have layers from 0 to 5"));
  EXPECT_THAT(refusal("[0, 3, 5]", "[0, 5, 3]"), HasSubstr("packs.backward must be first layers, rising"));
  for (const char* const wrong : {R"("yes")", "1", "[]"}) {
    EXPECT_THAT(refusal("\"prefetch\": true", std::string("\"prefetch\": ") + wrong),
                HasSubstr("the plan's prefetch must be true or false"));
    EXPECT_THAT(refusal("\"p2p\": false", std::string("\"mirrored\": ") + wrong),
                HasSubstr("the plan's mirrored must be true or false"));
  }
  const auto resident = [&](const std::string& layers) {
    return refusal("\"p2p\": false", "\"mirrored\": true, \"resident\": " + layers);
  };
  EXPECT_THAT(resident("{}"), HasSubstr("resident must be an array of layers that stay on their GPU"));
  EXPECT_THAT(resident("[6]"), HasSubstr("resident must have layers from 0 to 5"));
  EXPECT_THAT(resident("[1, 0]"), HasSubstr("resident must be layers, rising"));
  EXPECT_THAT(refusal("\"p2p\": false", "\"resident\": [2]"),
              HasSubstr("layer 2 cannot be resident: its forward and its backward"));
  EXPECT_THAT(refusal("[0, 2]", "[0, 1, 2, 3, 4, 5, 5]"), HasSubstr("packs.forward must be an array"));
}

TEST(SwapPlanJson, VolumesHaveBothNamesOfWeightsAndGradients) {
  const PackedVolumes packed{.weights_in = 10_B, .gradients_out = 5_B, .stash = 2_B, .p2p = 1_B};
  const Json json = to_json(SwapPlan(), packed).json();
  EXPECT_EQ(json["weightsIn"], json["weights"]);
  EXPECT_EQ(json["gradientsOut"], json["gradients"]);
  EXPECT_EQ(json["optimizerState"].asInt64(), 0);
  EXPECT_EQ(json["swapped"].asInt64(), 17);
  EXPECT_EQ(json["allReduceWire"].asInt64(), 0);
}

}  // namespace
}  // namespace plimsoll::estimator
