#include "cli/cluster_state.h"

#include <gmock/gmock.h>

#include "base/base64.h"
#include "base/gzip.h"
#include "base/yaml.h"
#include "tests/cli/run_command.h"

namespace plimsoll::cli {
namespace {

using plimsoll::testing::kCluster;
using ::testing::Contains;
using ::testing::HasSubstr;

Result<ClusterState> state_of(const std::string& yaml) {
  std::istringstream in(yaml);
  std::ostringstream out, err;
  Console console{in, out, err};
  const auto documents = read_documents({"-"}, console);
  EXPECT_TRUE(documents.ok()) << documents.error().message;
  return cluster_from_documents(*documents);
}

Json yaml(const std::string& text) {
  return parse_yaml_documents(text)->front();
}

TEST(ClusterState, CountsNodesAndWhatPodsHold) {
  const auto state = state_of(std::string(kCluster) + R"(---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {nodeName: n0, containers: [{resources: {limits: {nvidia.com/gpu: "5"}}}]}
)");
  ASSERT_TRUE(state.ok()) << state.error().message;
  ASSERT_EQ(state->gpus.size(), 1U);
  EXPECT_EQ(state->gpus[0].model.name, "A100-80GB");
  EXPECT_EQ(state->gpus[0].total_gpus, 16);
  EXPECT_EQ(state->gpus[0].free_gpus, 11);
}

TEST(ClusterState, PodsThatEndedOrWaitHoldNothing) {
  EXPECT_EQ(gpus_of_pod(yaml("spec: {nodeName: n0, containers: [{resources: {limits: {nvidia.com/gpu: 3}}}, "
                             "{resources: {limits: {nvidia.com/gpu: '2'}}}]}")),
            5);
  EXPECT_EQ(gpus_of_pod(yaml("spec: {containers: [{resources: {limits: {nvidia.com/gpu: 3}}}]}")), 0);
  EXPECT_EQ(
      gpus_of_pod(yaml("{spec: {nodeName: n0, containers: [{resources: {limits: {nvidia.com/gpu: 3}}}]}, "
                       "status: {phase: Succeeded}}")),
      0);
  EXPECT_EQ(gpus_of_pod(yaml("spec: {nodeName: n0, containers: [{resources: {limits: {nvidia.com/gpu: 1}}}], "
                             "initContainers: [{resources: {limits: {nvidia.com/gpu: 4}}}]}")),
            4);
  EXPECT_EQ(
      gpus_of_pod(yaml("spec: {nodeName: n0, containers: [{resources: {limits: {nvidia.com/gpu: x}}}, 7]}")),
      0);
  EXPECT_EQ(gpus_of_pod(yaml("spec: {nodeName: n0, containers: text}")), 0);
}

TEST(ClusterState, WithoutNodesTheGpuModelsStatusCounts) {
  const auto state = state_of(R"(apiVersion: plimsoll.dev/v1alpha1
kind: GPUModel
metadata: {name: a100-80gb}
spec: {costPerHour: "3"}
status:
  totalGPUs: 32
  freeGPUs: 8
  productLabels: [NVIDIA-A100-SXM4-80GB]
  nodes: [{gpusPerNode: 8, nodes: 4}]
)");
  ASSERT_TRUE(state.ok()) << state.error().message;
  ASSERT_EQ(state->gpus.size(), 1U);
  EXPECT_EQ(state->gpus[0].total_gpus, 32);
  EXPECT_EQ(state->gpus[0].free_gpus, 8);
}

TEST(ClusterState, UnknownLabelsAreNoted) {
  const auto state = state_of(R"(apiVersion: v1
kind: Node
metadata: {name: n0, labels: {nvidia.com/gpu.product: Banana-9000}}
status: {allocatable: {nvidia.com/gpu: "8"}}
)");
  ASSERT_TRUE(state.ok());
  EXPECT_TRUE(state->gpus.empty());
  EXPECT_THAT(state->notes, Contains(HasSubstr("Banana-9000")));
}

TEST(ClusterState, ProfilesAreFoundByNamespaceAndFamily) {
  const auto state = state_of(R"(apiVersion: plimsoll.dev/v1alpha1
kind: MemoryProfile
metadata: {name: one, namespace: team}
spec: {family: ads}
---
apiVersion: plimsoll.dev/v1alpha1
kind: MemoryProfile
metadata: {name: two}
spec: {family: news}
)");
  ASSERT_TRUE(state.ok()) << state.error().message;
  EXPECT_NE(state->profile_of("team", "ads"), nullptr);
  EXPECT_EQ(state->profile_of("default", "ads"), nullptr);
  EXPECT_NE(state->profile_of("default", "news"), nullptr);
  EXPECT_EQ(state->profile_of("default", ""), nullptr);
}

TEST(ClusterState, ObjectsThatMatterMustBeReadable) {
  EXPECT_FALSE(
      state_of("apiVersion: plimsoll.dev/v1alpha1\nkind: GPUModel\nmetadata: {name: x}\nspec: 7\n").ok());
  EXPECT_FALSE(
      state_of("apiVersion: plimsoll.dev/v1alpha1\nkind: MemoryProfile\nmetadata: {name: x}\n").ok());
  EXPECT_TRUE(state_of("apiVersion: v1\nkind: Service\nmetadata: 7\n").ok());
}

TEST(TablesOf, ReadsTextAndGzip) {
  const std::string csv = "name,rows,dim,pooling_factor\nt0,100,8,1\nt1,200,16,2\n";
  Json config_map(::Json::objectValue);
  config_map["data"]["plain"] = csv;
  config_map["binaryData"]["packed"] = base64_encode(gzip(csv));
  config_map["binaryData"]["broken"] = "!!";
  for (const char* key : {"plain", "packed"}) {
    const auto tables = tables_of(config_map, key);
    ASSERT_TRUE(tables.ok()) << tables.error().message;
    EXPECT_EQ(tables->size(), 2U);
  }
  EXPECT_FALSE(tables_of(config_map, "broken").ok());
  EXPECT_EQ(tables_of(config_map, "missing").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace plimsoll::cli
