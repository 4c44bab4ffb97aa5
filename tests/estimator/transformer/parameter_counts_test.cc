// Parameters of published models: counted on the lowered graph, equal to parameter_counts.yaml to the last one.
#include <gtest/gtest.h>

#include <string>

#include "estimator/transformer/transformer.h"
#include "tests/estimator/data_files.h"

namespace plimsoll::estimator {
namespace {

TEST(ParameterCounts, AreThePublishedOnes) {
  for (const Json& model : testing::yaml_rows("transformer/parameter_counts.yaml")) {
    const std::string name = model["name"].asString();
    const Result<TransformerSpec> spec = spec_of_config(
        write_json(model["config"]), model.get("tokens", 512).asInt64(), crds::AttentionKind::kSDPA);
    ASSERT_TRUE(spec.ok()) << name << ": " << to_string(spec.error());
    const crds::TrainingSpec training{.batch_size_per_trainer = 1};
    const Result<ForwardGraph> graph = lower_transformer(*spec, training, {});
    ASSERT_TRUE(graph.ok()) << name << ": " << to_string(graph.error());
    constexpr std::int64_t kWidth = 4;  // FP32
    EXPECT_EQ(graph->parameter_bytes().count, kWidth * model["parameters"].asInt64()) << name;
  }
}

}  // namespace
}  // namespace plimsoll::estimator
