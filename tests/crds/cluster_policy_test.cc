#include "crds/cluster_policy.h"

#include <gtest/gtest.h>

namespace plimsoll::crds {
namespace {

// What a job that names `named`, or nothing, gets.
ProvisioningMode settled(const ClusterPolicy& policy, std::optional<ProvisioningMode> named,
                         std::optional<ProvisioningMode> of_namespace) {
  ProvisioningSpec spec;
  spec.mode_given = named.has_value();
  spec.mode = named.value_or(spec.mode);
  policy.settle_mode(spec, of_namespace);
  return spec.mode;
}

TEST(ClusterPolicy, TheJobThenItsNamespaceThenTheClusterSayTheMode) {
  const ClusterPolicy policy{.mode = ProvisioningMode::kInitial};
  EXPECT_EQ(settled(policy, {}, {}), ProvisioningMode::kInitial);
  EXPECT_EQ(settled(policy, {}, ProvisioningMode::kOff), ProvisioningMode::kOff);
  EXPECT_EQ(settled(policy, ProvisioningMode::kAuto, ProvisioningMode::kOff), ProvisioningMode::kAuto);
}

TEST(ClusterPolicy, AdviceOnlyOverridesThemAll) {
  const ClusterPolicy policy{.advice_only = true};
  EXPECT_EQ(settled(policy, {}, ProvisioningMode::kAuto), ProvisioningMode::kOff);
  EXPECT_EQ(settled(policy, ProvisioningMode::kAuto, ProvisioningMode::kAuto), ProvisioningMode::kOff);
}

TEST(ClusterPolicy, ALabelThatIsNoModeCountsAsNone) {
  EXPECT_EQ(mode_of_label("Off"), ProvisioningMode::kOff);
  EXPECT_EQ(mode_of_label("off"), std::nullopt);
  EXPECT_EQ(mode_of_label(""), std::nullopt);
}

}  // namespace
}  // namespace plimsoll::crds
