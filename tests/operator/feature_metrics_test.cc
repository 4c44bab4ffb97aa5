#include "operator/feature_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

namespace plimsoll::process {
namespace {

using ::testing::HasSubstr;

TEST(FeatureMetrics, SayWhichAreOn) {
  const Result<crds::FeatureGates> gates = crds::FeatureGates::parse({"WorkloadSizing=false"});
  ASSERT_TRUE(gates.ok());
  const std::string text = prometheus::TextSerializer().Serialize(FeatureMetrics(*gates).Collect());
  EXPECT_THAT(text, HasSubstr("# TYPE kubernetes_feature_enabled gauge\n"));
  EXPECT_THAT(text, HasSubstr("kubernetes_feature_enabled{name=\"SwapTraining\",stage=\"BETA\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("kubernetes_feature_enabled{name=\"WorkloadSizing\",stage=\"BETA\"} 0\n"));
}

}  // namespace
}  // namespace plimsoll::process
