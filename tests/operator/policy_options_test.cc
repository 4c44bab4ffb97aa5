#include "operator/policy_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/operator/parsed_options.h"

namespace plimsoll::process {
namespace {

using ::testing::HasSubstr;

Result<crds::ClusterPolicy> read(const std::vector<std::string>& arguments) {
  return policy_of(plimsoll::testing::parsed<PolicyOptions>(arguments));
}

TEST(PolicyOptions, AreSafeByDefault) {
  const Result<crds::ClusterPolicy> policy = read({});
  ASSERT_TRUE(policy.ok());
  EXPECT_EQ(policy->mode, crds::ProvisioningMode::kAuto);
  EXPECT_FALSE(policy->advice_only);
  EXPECT_DOUBLE_EQ(policy->min_share_of_asked, 0.25);
}

TEST(PolicyOptions, AreReadAndWrongOnesNamed) {
  const Result<crds::ClusterPolicy> policy =
      read({"--training-job-mode=Initial", "--advice-only=true", "--min-share-of-asked=12.5%"});
  ASSERT_TRUE(policy.ok());
  EXPECT_EQ(policy->mode, crds::ProvisioningMode::kInitial);
  EXPECT_TRUE(policy->advice_only);
  EXPECT_DOUBLE_EQ(policy->min_share_of_asked, 0.125);
  EXPECT_THAT(read({"--training-job-mode=Advice"}).error().message,
              HasSubstr("--training-job-mode must be Auto, Initial or Off"));
  for (const char* share : {"0.25", "125%", "-5%"}) {
    const Result<crds::ClusterPolicy> wrong = read({std::string("--min-share-of-asked=") + share});
    ASSERT_FALSE(wrong.ok()) << share;
    EXPECT_THAT(wrong.error().message, HasSubstr("--min-share-of-asked"));
  }
}

TEST(PolicyOptions, HaveFeatureGates) {
  EXPECT_TRUE(read({})->gates.enabled(crds::Feature::kWorkloadSizing));
  const Result<crds::ClusterPolicy> policy =
      read({"--feature-gates=WorkloadSizing=false,AllAlpha=true", "--feature-gates=DCGMLearning=false"});
  ASSERT_TRUE(policy.ok());
  EXPECT_FALSE(policy->gates.enabled(crds::Feature::kWorkloadSizing));
  EXPECT_FALSE(policy->gates.enabled(crds::Feature::kDCGMLearning));
  EXPECT_THAT(read({"--feature-gates=Nonsense=true"}).error().message,
              HasSubstr("--feature-gates: there is no feature gate \"Nonsense\""));
}

}  // namespace
}  // namespace plimsoll::process
