#include "estimator/swap/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace plimsoll::estimator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<SwapProfile> read(const char* text) {
  const Result<JsonText> json = JsonText::parse(text);
  EXPECT_TRUE(json.ok()) << text;
  return read_swap_profile(json->root());
}

TEST(SwapProfile, IsReadFromWhatWasMeasured) {
  const Result<SwapProfile> profile =
      read(R"({"R": 2, "W": [10, 20], "B": [0, 3], "K": [20, 40], "x": {"1": [5, 7], "2": [10, 14]}})");
  ASSERT_TRUE(profile.ok());
  EXPECT_THAT(profile->weights, ElementsAre(10_B, 20_B));
  EXPECT_THAT(profile->buffers, ElementsAre(0_B, 3_B));
  const std::vector<SwapLayer> layers = layers_at(*profile, 2);
  EXPECT_EQ(layers[0].input, 10_B);
  EXPECT_EQ(layers[0].output, 14_B) << "what the next layer takes";
  EXPECT_EQ(layers[0].input_gradient, 0_B);
  EXPECT_EQ(layers[1].output, 0_B) << "the loss";
  EXPECT_EQ(layers[1].input_gradient, 14_B);
}

constexpr const char* kMeasured =
    R"({"R": 1, "W": [10], "K": [20], "x": {"1": [5]}, "upd": [0.5], "tf": {"4": [0.3], "1": [0.1]},
        "mf": {"1": [100], "4": [400]}, "tb": {"1": [0.2]}, "mb": {"1": [150]}})";

TEST(SwapProfile, PassesAreLinearBetweenTheMicrobatchesThatWereMeasured) {
  const Result<SwapProfile> profile = read(kMeasured);
  ASSERT_TRUE(profile.ok()) << to_string(profile.error());
  EXPECT_THAT(profile->update_seconds, ElementsAre(0.5));
  const std::optional<SwapPass> between = pass_at(profile->forward, 2);
  ASSERT_TRUE(between.has_value());
  EXPECT_NEAR(between->seconds[0], 0.1 + 0.2 / 3, 1e-12);
  EXPECT_EQ(between->memory[0], 200_B);
  EXPECT_EQ(pass_at(profile->forward, 4)->memory[0], 400_B);
  EXPECT_FALSE(pass_at(profile->forward, 5).has_value());
  EXPECT_FALSE(pass_at(profile->backward, 2).has_value());
}

TEST(SwapProfile, LayersThatShareAParameterAreReadAsTheyAreWritten) {
  const Result<SwapProfile> profile =
      read(R"({"R": 3, "W": [1, 2, 3], "K": [0, 0, 0], "x": {"1": [5, 7, 9]}, "tied": [0, 2]})");
  ASSERT_TRUE(profile.ok()) << to_string(profile.error());
  EXPECT_THAT(profile->tied, ElementsAre(0U, 2U));
  const Result<SwapProfile> again = read(write_json(to_json(*profile).json()).c_str());
  EXPECT_EQ(again->tied, profile->tied);
  for (const char* const wrong : {R"("0")", "[3]", "[-1]", "[1, 0]", "[0, 0]", "[0, 1, 2, 2]", "[0.5]"}) {
    const std::string text = R"({"R": 3, "W": [1, 2, 3], "K": [0, 0, 0], "x": {"1": [5, 7, 9]}, "tied": )" +
                             std::string(wrong) + "}";
    EXPECT_THAT(read(text.c_str()).error().message, HasSubstr("the profile's tied must")) << wrong;
  }
}

TEST(SwapProfile, TimesAreAllThereOrNone) {
  const auto refusal = [](const std::string& from, const std::string& to) {
    std::string text = kMeasured;
    text.replace(text.find(from), from.size(), to);
    return read(text.c_str()).error().message;
  };
  EXPECT_THAT(refusal(R"("upd": [0.5],)", ""), HasSubstr("upd must be an array of R = 1 times"));
  EXPECT_THAT(refusal("[0.5]", "[-1]"), HasSubstr("upd must have numbers from 0 to"));
  EXPECT_THAT(refusal(R"("tb": {"1": [0.2]},)", ""),
              HasSubstr("tb must be an object with 1 to 1024 microbatches"));
  EXPECT_THAT(refusal(R"({"1": [100], )", "{"), HasSubstr(R"(mf["1"] must be an array of R = 1 sizes)"));
  EXPECT_THAT(refusal(R"("tf": {"4")", R"("tf": {"0")"), HasSubstr(R"(tf["0"] is no microbatch)"));
  EXPECT_THAT(refusal(R"("tf": {"4")", R"("tf": {"x")"), HasSubstr(R"(tf["x"] is no microbatch)"));
}

TEST(SwapProfile, EachWrongMemberIsNamed) {
  const auto refusal = [](const char* text) { return read(text).error().message; };
  EXPECT_THAT(refusal("[]"), HasSubstr("a profile is a JSON object with R, W, K and x"));
  EXPECT_THAT(refusal("{}"), HasSubstr("the profile's R must be the number of layers, from 1 to 100000"));
  EXPECT_THAT(refusal(R"({"R": 1e9})"), HasSubstr("R must be the number of layers"));
  EXPECT_THAT(refusal(R"({"R": 1})"), HasSubstr("the profile's W must be an array of R = 1 sizes"));
  EXPECT_THAT(refusal(R"({"R": 1, "W": [1, 2]})"), HasSubstr("W must be an array of R = 1 sizes"));
  EXPECT_THAT(refusal(R"({"R": 1, "W": [-1]})"), HasSubstr("W must have whole numbers from 0 to"));
  EXPECT_THAT(refusal(R"({"R": 1, "W": ["1"]})"), HasSubstr("W must have whole numbers"));
  EXPECT_THAT(refusal(R"({"R": 1, "W": [1], "K": {}})"), HasSubstr("K must be an array"));
  EXPECT_THAT(refusal(R"({"R": 1, "W": [1], "K": [1], "x": []})"), HasSubstr(R"(x["1"] must be an array)"));
  EXPECT_THAT(refusal(R"({"R": 1, "W": [1], "K": [1], "x": {"1": [1]}, "B": [0.5]})"),
              HasSubstr("B must have"));
}

TEST(SwapProfile, IsReadAsItIsWritten) {
  const Result<SwapProfile> profile = read(
      R"({"R": 2, "W": [10, 20], "B": [0, 3], "K": [40, 80], "hostW": [20, 40], "x": {"1": [5, 7]}, "upd": [0.5, 1],
          "tf": {"1": [0.1, 0.2], "4": [0.3, 0.4]}, "mf": {"1": [100, 110], "4": [400, 410]},
          "tb": {"1": [0.2, 0.3]}, "mb": {"1": [150, 160]}})");
  ASSERT_TRUE(profile.ok()) << to_string(profile.error());
  const std::string written = write_json(to_json(*profile).json());
  const Result<SwapProfile> again = read(written.c_str());
  ASSERT_TRUE(again.ok()) << to_string(again.error());
  EXPECT_EQ(write_json(to_json(*again).json()), written);
  EXPECT_EQ(again->host_weights, profile->host_weights);
  EXPECT_EQ(again->forward[1].memory, profile->forward[1].memory);
  EXPECT_EQ(again->backward[0].seconds, profile->backward[0].seconds);
  EXPECT_THAT(written, HasSubstr(R"("4":[20,28])")) << "x of each microbatch, which plimsoll.harmony reads";
}

TEST(SwapProfile, TheHostKeepsWhatMovesUnlessItSaysOtherwise) {
  const Result<SwapProfile> plain = read(R"({"R": 1, "W": [10], "K": [20], "x": {"1": [5]}})");
  const Result<SwapProfile> wide = read(R"({"R": 1, "W": [10], "K": [20], "hostW": [40], "x": {"1": [5]}})");
  ASSERT_TRUE(plain.ok() && wide.ok());
  EXPECT_EQ(plain->kept_on_host(0), 10_B);
  EXPECT_EQ(wide->kept_on_host(0), 40_B);
  EXPECT_EQ(wide->moved(0), 10_B);
  EXPECT_THAT(read(R"({"R": 1, "W": [10], "K": [20], "hostW": [1, 2], "x": {"1": [5]}})").error().message,
              HasSubstr("hostW must be an array of R = 1 sizes"));
}

}  // namespace
}  // namespace plimsoll::estimator
