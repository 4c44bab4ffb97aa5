#include "crds/feature_gates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace plimsoll::crds {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// One of each stage, and a second Beta.
constexpr auto kSamples = std::to_array<FeatureSpec>({{"Young", Stage::kAlpha, "0.3"},
                                                      {"Proven", Stage::kBeta, "0.2"},
                                                      {"Tried", Stage::kBeta, "0.3"},
                                                      {"Done", Stage::kGA, "0.3"}});

std::vector<bool> parsed(const std::vector<std::string>& texts) {
  const Result<std::vector<bool>> enabled = parse_feature_gates(texts, kSamples);
  EXPECT_TRUE(enabled.ok()) << enabled.error().message;
  return enabled ? *enabled : std::vector<bool>();
}

std::string problem(const std::vector<std::string>& texts) {
  const Result<std::vector<bool>> enabled = parse_feature_gates(texts, kSamples);
  EXPECT_FALSE(enabled.ok());
  return enabled ? "" : to_string(enabled.error());
}

TEST(ParseFeatureGates, StagesSayWhatIsOnByDefault) {
  for (const std::vector<std::string>& nothing :
       {std::vector<std::string>{}, {""}, {" , "}, {"AllAlpha=false"}}) {
    EXPECT_THAT(parsed(nothing), ElementsAre(false, true, true, true));
  }
}

TEST(ParseFeatureGates, EachIsTurnedOnAndOff) {
  EXPECT_THAT(parsed({"Young=true,Tried=false"}), ElementsAre(true, true, false, true));
  EXPECT_THAT(parsed({"Young=true", " Tried = false ,"}), ElementsAre(true, true, false, true));
  EXPECT_THAT(parsed({"Done=true"}), ElementsAre(false, true, true, true));
  EXPECT_THAT(parsed({"Young=true", "Young=true"}), ElementsAre(true, true, true, true));
}

TEST(ParseFeatureGates, GroupsConcernWhatIsNotNamed) {
  EXPECT_THAT(parsed({"AllAlpha=true"}), ElementsAre(true, true, true, true));
  EXPECT_THAT(parsed({"AllBeta=false"}), ElementsAre(false, false, false, true));
  EXPECT_THAT(parsed({"Proven=true,AllBeta=false"}), ElementsAre(false, true, false, true));
  EXPECT_THAT(parsed({"AllBeta=false,Proven=true"}), ElementsAre(false, true, false, true));
  EXPECT_THAT(parsed({"AllAlpha=true,Young=false"}), ElementsAre(false, true, true, true));
}

TEST(ParseFeatureGates, WrongOnesAreNamed) {
  EXPECT_THAT(problem({"Old=true"}), AllOf(HasSubstr("there is no feature gate \"Old\""),
                                           HasSubstr("AllAlpha, AllBeta, Young, Proven, Tried, Done")));
  EXPECT_THAT(problem({"Provem=true"}), HasSubstr("did you mean Proven?"));
  EXPECT_THAT(problem({"=true"}), HasSubstr("there is no feature gate \"\""));
  for (const char* text : {"Young", "Young=", "Young=yes", "Young=1", "Young=true=false", "Young=True"}) {
    EXPECT_THAT(problem({text}), HasSubstr("feature gate Young must be true or false")) << text;
  }
  EXPECT_THAT(problem({"Young=true,Young=false"}), HasSubstr("Young is given both as true and as false"));
  EXPECT_THAT(problem({"AllBeta=true", "AllBeta=false"}), HasSubstr("AllBeta is given both"));
  EXPECT_THAT(problem({"Done=false"}), HasSubstr("Done can't be turned off: the feature is GA"));
}

TEST(FeatureGates, AreSetByName) {
  EXPECT_TRUE(FeatureGates().enabled(Feature::kWorkloadSizing));
  for (std::size_t i = 0; i < kFeatures.size(); ++i) {
    const auto feature = static_cast<Feature>(i);
    EXPECT_EQ(FeatureGates().enabled(feature), kFeatures[i].on_by_default()) << kFeatures[i].name;
    const Result<FeatureGates> off = FeatureGates::parse({std::string(kFeatures[i].name) + "=false"});
    ASSERT_TRUE(off.ok());
    EXPECT_FALSE(off->enabled(feature)) << kFeatures[i].name;
    EXPECT_THAT(off_text(feature), HasSubstr(kFeatures[i].name));
  }
  EXPECT_FALSE(FeatureGates::parse({"Nonsense=true"}).ok());
}

TEST(FeatureGates, HaveNamesInOrder) {
  for (std::size_t i = 1; i < kFeatures.size(); ++i) {
    EXPECT_LT(std::string(kFeatures[i - 1].name), kFeatures[i].name);
  }
  EXPECT_STREQ(kFeatures[static_cast<std::size_t>(Feature::kDCGMLearning)].name, "DCGMLearning");
  EXPECT_STREQ(kFeatures[static_cast<std::size_t>(Feature::kSwapTraining)].name, "SwapTraining");
  EXPECT_STREQ(kFeatures[static_cast<std::size_t>(Feature::kTrainerAutoconfPlugin)].name,
               "TrainerAutoconfPlugin");
  EXPECT_STREQ(kFeatures[static_cast<std::size_t>(Feature::kWorkloadSizing)].name, "WorkloadSizing");
}

TEST(FeatureGatesHelp, HasStageAndDefaultOfEach) {
  EXPECT_THAT(feature_gates_help(),
              AllOf(HasSubstr("AllAlpha=true|false (ALPHA - default=false)"),
                    HasSubstr("AllBeta=true|false (BETA - default=false)"),
                    HasSubstr("WorkloadSizing=true|false (BETA - default=true)"), Not(HasSubstr("()"))));
}

}  // namespace
}  // namespace plimsoll::crds
