#include "controllers/inventory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/yaml.h"
#include "tests/estimator/provisioner_fixture.h"

namespace plimsoll::controllers {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Json yaml(const std::string& text) {
  Result<std::vector<Json>> documents = parse_yaml_documents(text);
  EXPECT_TRUE(documents) << to_string(documents.error());
  return documents ? documents->front() : Json();
}

Json pod(const std::string& spec, const std::string& status = "{phase: Running}") {
  return yaml(
      "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: ns, uid: u, resourceVersion: '5'}\nspec: " +
      spec + "\nstatus: " + status + "\n");
}

struct PodCase {
  const char* name;
  std::string spec;
  std::int64_t gpus;
};

class GpusOfPod : public ::testing::TestWithParam<PodCase> {};

TEST_P(GpusOfPod, CountsAsTheSchedulerDoes) {
  EXPECT_EQ(gpus_of_pod(pod(GetParam().spec)), GetParam().gpus);
}

const std::string kFour = "resources: {limits: {nvidia.com/gpu: 4}}";

INSTANTIATE_TEST_SUITE_P(
    Pods, GpusOfPod,
    ::testing::Values(
        PodCase{"None", "{containers: [{name: a}]}", 0},
        PodCase{"Limits", "{containers: [{name: a, " + kFour + "}]}", 4},
        PodCase{"QuotedAmount", "{containers: [{resources: {limits: {nvidia.com/gpu: '8'}}}]}", 8},
        PodCase{"RequestsAlone", "{containers: [{resources: {requests: {nvidia.com/gpu: '2'}}}]}", 2},
        PodCase{
            "BothAreOne",
            "{containers: [{resources: {requests: {nvidia.com/gpu: '2'}, limits: {nvidia.com/gpu: '2'}}}]}",
            2},
        PodCase{"ContainersAddUp", "{containers: [{" + kFour + "}, {" + kFour + "}, {name: c}]}", 8},
        PodCase{"InitContainersRunAlone",
                "{initContainers: [{" + kFour + "}, {" + kFour + "}], containers: [{name: c}]}", 4},
        PodCase{
            "TheLargerOfBoth",
            "{initContainers: [{" + kFour + "}], containers: [{resources: {limits: {nvidia.com/gpu: 6}}}]}",
            6},
        PodCase{"SidecarsRunBesideTheContainers",
                "{initContainers: [{restartPolicy: Always, " + kFour + "}], containers: [{" + kFour + "}]}",
                8},
        PodCase{"SidecarsRunBesideLaterInitContainers",
                "{initContainers: [{restartPolicy: Always, " + kFour + "}, {" + kFour +
                    "}], containers: [{name: c}]}",
                8},
        PodCase{"OtherResources", "{containers: [{resources: {limits: {cpu: 4, amd.com/gpu: 1}}}]}", 0},
        PodCase{"Negative", "{containers: [{resources: {limits: {nvidia.com/gpu: -4}}}]}", 0},
        PodCase{"NoNumber", "{containers: [{resources: {limits: {nvidia.com/gpu: many}}}]}", 0},
        PodCase{
            "Absurd",
            "{containers: [{resources: {limits: {nvidia.com/gpu: 9223372036854775807}}}, {" + kFour + "}]}",
            9223372036854775807},
        PodCase{"WrongTypes",
                "{containers: [5, {resources: x}, {resources: {limits: []}}], initContainers: 7}", 0}),
    [](const auto& about) { return about.param.name; });

TEST(ProjectPod, KeepsOnlyPodsThatHoldGpusOfANode) {
  const std::string gpus = "containers: [{" + kFour + "}]";
  const Json kept = project_pod(pod("{nodeName: n1, " + gpus + "}"));
  EXPECT_EQ(kept["node"].asString(), "n1");
  EXPECT_EQ(kept["gpus"].asInt64(), 4);
  EXPECT_EQ(kept["metadata"]["resourceVersion"].asString(), "5");
  EXPECT_LT(write_json(kept).size(), 150U);
  EXPECT_FALSE(project_pod(pod("{nodeName: n1, " + gpus + "}", "{phase: Pending}")).isNull());
  EXPECT_TRUE(project_pod(pod("{" + gpus + "}")).isNull());
  EXPECT_TRUE(project_pod(pod("{nodeName: n1, containers: [{name: a}]}")).isNull());
  EXPECT_TRUE(project_pod(pod("{nodeName: n1, " + gpus + "}", "{phase: Succeeded}")).isNull());
  EXPECT_TRUE(project_pod(pod("{nodeName: n1, " + gpus + "}", "{phase: Failed}")).isNull());
  EXPECT_TRUE(project_pod(Json()).isNull());
}

std::string node_text(const std::string& name, const std::string& product, int gpus) {
  return "apiVersion: v1\nkind: Node\nmetadata: {name: " + name +
         ", resourceVersion: '5', managedFields: [{manager: kubelet}], annotations: {big: text}, labels: "
         "{nvidia.com/gpu.product: " +
         product +
         ", nvidia.com/gpu.memory: '81920'}}\nspec: {podCIDR: x}\nstatus: {allocatable: {cpu: '8', "
         "nvidia.com/gpu: '" +
         std::to_string(gpus) +
         "'}, images: [{names: [a]}], conditions: [{type: Ready, status: 'True', lastHeartbeatTime: now}, "
         "{type: "
         "DiskPressure, status: 'False'}]}\n";
}

TEST(ProjectNode, KeepsWhatTheInventoryReadsAndNothingThatBeats) {
  const Json full = yaml(node_text("n1", "NVIDIA-A100-SXM4-80GB", 8));
  const Json kept = project_node(full);
  EXPECT_FALSE(kept["metadata"].isMember("managedFields"));
  EXPECT_FALSE(kept["status"].isMember("images"));
  EXPECT_EQ(write_json(kept["status"]["conditions"]), R"([{"status":"True","type":"Ready"}])");
  const Result<estimator::GpuNode> before = estimator::decode_node(full);
  const Result<estimator::GpuNode> after = estimator::decode_node(kept);
  ASSERT_TRUE(before);
  ASSERT_TRUE(after);
  EXPECT_EQ(after->product, before->product);
  EXPECT_EQ(after->gpus, before->gpus);
  EXPECT_EQ(after->memory_per_gpu.count, before->memory_per_gpu.count);
  EXPECT_EQ(after->schedulable, before->schedulable);
}

TEST(ProjectNode, KeepsWhatMakesANodeUnschedulable) {
  Json full = yaml(node_text("n1", "NVIDIA-A100-SXM4-80GB", 8));
  full["spec"]["unschedulable"] = true;
  EXPECT_FALSE(estimator::decode_node(project_node(full))->schedulable);
  full["spec"]["unschedulable"] = false;
  EXPECT_TRUE(estimator::decode_node(project_node(full))->schedulable);
  full["spec"]["taints"][0]["key"] = "maintenance";
  full["spec"]["taints"][0]["effect"] = "NoSchedule";
  EXPECT_FALSE(estimator::decode_node(project_node(full))->schedulable);
  full["spec"].removeMember("taints");
  full["status"]["conditions"][0]["status"] = "Unknown";
  EXPECT_FALSE(estimator::decode_node(project_node(full))->schedulable);
}

TEST(CountNodes, AddsThePodsOfEachNode) {
  const std::vector<Json> nodes = {yaml(node_text("n1", "NVIDIA-A100-SXM4-80GB", 8)),
                                   yaml(node_text("n2", "NVIDIA-A100-SXM4-80GB", 8)), Json(5)};
  const std::string four = "containers: [{" + kFour + "}]}";
  const std::vector<Json> pods = {project_pod(pod("{nodeName: n1, " + four)),
                                  project_pod(pod("{nodeName: n1, " + four)),
                                  project_pod(pod("{nodeName: gone, " + four))};
  const std::vector<estimator::GpuNode> counted = count_nodes(nodes, pods);
  ASSERT_THAT(counted, SizeIs(2));
  EXPECT_EQ(counted[0].requested_gpus, 8);
  EXPECT_EQ(counted[1].requested_gpus, 0);
}

estimator::AvailableGpu a100(std::int64_t total, std::int64_t free) {
  estimator::AvailableGpu gpu;
  gpu.model.name = "A100-80GB";
  gpu.model.memory = 80_GiB;
  gpu.product_labels = {"NVIDIA-A100-SXM4-80GB"};
  gpu.total_gpus = total;
  gpu.free_gpus = free;
  gpu.gpus_per_node = 8;
  gpu.shapes = {{8, total / 8}};
  return gpu;
}

crds::GpuModel stored(const Json& object) {
  Result<crds::GpuModel> decoded = crds::decode_gpu_model(object);
  EXPECT_TRUE(decoded) << to_string(decoded.error());
  return *decoded;
}

// What the API server would hold after the write.
crds::GpuModel after(const InventoryWrite& write) {
  Json object = write.object;
  if (write.kind == InventoryWrite::Kind::kCreate) {
    object["status"] = write.status;
  }
  object["metadata"]["resourceVersion"] = "9";
  return stored(object);
}

TEST(PlanInventory, CreatesAModelThatItMeetsForTheFirstTime) {
  const std::vector<InventoryWrite> writes = plan_inventory({a100(16, 12)}, {});
  ASSERT_THAT(writes, SizeIs(1));
  EXPECT_EQ(writes[0].kind, InventoryWrite::Kind::kCreate);
  EXPECT_EQ(writes[0].name, "a100-80gb");
  EXPECT_FALSE(writes[0].object.isMember("status"));
  const crds::GpuModel result = after(writes[0]);
  EXPECT_EQ(result.status.total_gpus, 16);
  EXPECT_EQ(result.status.free_gpus, 12);
  ASSERT_THAT(result.status.nodes, SizeIs(1));
  EXPECT_EQ(result.status.nodes[0].nodes, 2);
  EXPECT_THAT(result.status.product_labels, ElementsAre("NVIDIA-A100-SXM4-80GB"));
  EXPECT_EQ(result.status.memory->count, (80_GiB).count);
}

TEST(PlanInventory, IsIdempotent) {
  const std::vector<estimator::AvailableGpu> present = {a100(16, 12)};
  const crds::GpuModel written = after(plan_inventory(present, {})[0]);
  EXPECT_THAT(plan_inventory(present, {written}), IsEmpty());
}

TEST(PlanInventory, UpdatesOnlyTheStatusAndKeepsWhatIsUnknown) {
  crds::GpuModel written = after(plan_inventory({a100(16, 12)}, {})[0]);
  written.raw["spec"]["future"] = "field";
  const std::vector<InventoryWrite> writes = plan_inventory({a100(16, 4)}, {stored(written.raw)});
  ASSERT_THAT(writes, SizeIs(1));
  EXPECT_EQ(writes[0].kind, InventoryWrite::Kind::kUpdateStatus);
  EXPECT_EQ(writes[0].object["spec"]["future"].asString(), "field");
  EXPECT_EQ(writes[0].object["metadata"]["resourceVersion"].asString(), "9");
  EXPECT_EQ(after(writes[0]).status.free_gpus, 4);
}

TEST(PlanInventory, ZeroesAModelWhoseNodesAreGoneOnce) {
  const crds::GpuModel written = after(plan_inventory({a100(16, 12)}, {})[0]);
  const std::vector<InventoryWrite> writes = plan_inventory({}, {written});
  ASSERT_THAT(writes, SizeIs(1));
  const crds::GpuModel zeroed = after(writes[0]);
  EXPECT_EQ(zeroed.status.total_gpus, 0);
  EXPECT_THAT(zeroed.status.nodes, IsEmpty());
  EXPECT_THAT(plan_inventory({}, {zeroed}), IsEmpty());
}

TEST(PlanInventory, GivesAModelThatAPersonMadeItsFirstStatus) {
  const Json made = yaml(
      "apiVersion: plimsoll.dev/v1alpha1\nkind: GPUModel\nmetadata: {name: b999}\nspec: {memory: 512Gi, "
      "productLabels: [NVIDIA-B999]}\n");
  const std::vector<InventoryWrite> writes = plan_inventory({}, {stored(made)});
  ASSERT_THAT(writes, SizeIs(1));
  EXPECT_EQ(writes[0].kind, InventoryWrite::Kind::kUpdateStatus);
  EXPECT_THAT(plan_inventory({}, {after(writes[0])}), IsEmpty());
}

TEST(PlanInventory, StaysWithinTheSchemasLimits) {
  estimator::AvailableGpu gpu = a100(16, 12);
  gpu.product_labels.clear();
  gpu.shapes.clear();
  for (int i = 1; i <= 100; ++i) {
    gpu.product_labels.push_back("label-" + std::to_string(i));
    gpu.shapes.push_back({i, 1});
  }
  const Json status = plan_inventory({gpu}, {})[0].status;
  EXPECT_EQ(status["productLabels"].size(), 64U);
  EXPECT_EQ(status["nodeShapes"].size(), 64U);
}

TEST(PlanInventory, WritesInTheOrderOfTheNames) {
  estimator::AvailableGpu h100 = a100(8, 8);
  h100.model.name = "H100";
  const std::vector<InventoryWrite> writes = plan_inventory({h100, a100(8, 8)}, {});
  ASSERT_THAT(writes, SizeIs(2));
  EXPECT_EQ(writes[0].name, "a100-80gb");
  EXPECT_EQ(writes[1].name, "h100");
}

TEST(Autoscaling, WhatCouldExistIsThereForDecisions) {
  crds::GpuModel model;
  model.name = "a100-80gb";
  model.spec.autoscaling = crds::GpuAutoscaling{.max_nodes = 4, .gpus_per_node = 8};
  std::vector<estimator::AvailableGpu> gpus =
      estimator::inventory_of({model}, estimator::GpuCatalog::built_in());
  ASSERT_EQ(gpus.size(), 1U) << "scaled to zero";
  EXPECT_EQ(gpus[0].total_gpus, 32);
  EXPECT_EQ(gpus[0].addable_gpus, 32);
  EXPECT_EQ(gpus[0].free_gpus, 0);
  EXPECT_EQ(gpus[0].gpus_per_node, 8);
  EXPECT_FALSE(gpus[0].product_labels.empty()) << "the labels of such nodes";

  model.status = {.total_gpus = 28,
                  .free_gpus = 3,
                  .nodes = {{.gpus_per_node = 4, .nodes = 1}, {.gpus_per_node = 8, .nodes = 3}},
                  .product_labels = {"NVIDIA-A100-SXM4-80GB"},
                  .memory = 80_GiB};
  gpus = estimator::inventory_of({model}, estimator::GpuCatalog::built_in());
  EXPECT_EQ(gpus[0].total_gpus, 36);
  EXPECT_EQ(gpus[0].addable_gpus, 8) << "three of the four are there";
  EXPECT_EQ(gpus[0].free_gpus, 3);
  EXPECT_EQ(gpus[0].product_labels, std::vector<std::string>{"NVIDIA-A100-SXM4-80GB"});

  model.spec.autoscaling->max_nodes = 2;
  EXPECT_EQ(estimator::inventory_of({model}, estimator::GpuCatalog::built_in())[0].addable_gpus, 0);
}

TEST(Autoscaling, TheReasonTellsWhatIsNotThereYet) {
  crds::GpuModel model;
  model.name = "a100-80gb";
  model.spec.autoscaling = crds::GpuAutoscaling{.max_nodes = 64, .gpus_per_node = 8};
  const auto gpus = estimator::inventory_of({model}, estimator::GpuCatalog::built_in());
  const estimator::Provision answer =
      plimsoll::testing::provision(plimsoll::testing::job_object(400, 2 * 2'097'152), gpus);
  ASSERT_TRUE(answer.decided()) << answer.reason;
  EXPECT_NE(answer.reason.find("16 of them on nodes that autoscaling has yet to add"), std::string::npos)
      << answer.reason;
}

TEST(HostMemory, TheLeastThatANodeHasIsTold) {
  Json small = yaml(node_text("n1", "NVIDIA-A100-SXM4-80GB", 8));
  small["status"]["allocatable"]["memory"] = "524288Ki";
  Json large = yaml(node_text("n2", "NVIDIA-A100-SXM4-80GB", 8));
  large["status"]["allocatable"]["memory"] = "2Ti";
  const auto gpus = estimator::take_inventory(count_nodes({project_node(small), project_node(large)}, {}),
                                              estimator::GpuCatalog::built_in());
  ASSERT_EQ(gpus.size(), 1U);
  EXPECT_EQ(gpus[0].host_memory, 512_MiB);
  EXPECT_EQ(plan_inventory(gpus, {}).front().status["hostMemory"], "512Mi");
  large["status"]["allocatable"]["memory"] = "much";
  EXPECT_EQ(estimator::decode_node(large)->host_memory, Bytes{});
}

TEST(Capabilities, OfTheNodesComeBeforeTheCatalogues) {
  std::vector<Json> nodes;
  for (const auto& [name, driver] : {std::pair("n1", "535.104.12"), std::pair("n2", "470.82.01")}) {
    Json node = yaml(node_text(name, "NVIDIA-A100-SXM4-80GB", 8));
    node["metadata"]["labels"]["nvidia.com/cuda.driver-version.full"] = driver;
    node["metadata"]["labels"]["kubernetes.io/arch"] = "amd64";
    node["metadata"]["labels"]["nvidia.com/gpu.compute.major"] = "9";
    node["metadata"]["labels"]["nvidia.com/gpu.compute.minor"] = "0";
    nodes.push_back(project_node(node));
  }
  const auto gpus = estimator::take_inventory(count_nodes(nodes, {}), estimator::GpuCatalog::built_in());
  ASSERT_EQ(gpus.size(), 1U);
  const Json status = plan_inventory(gpus, {}).front().status;
  EXPECT_EQ(status["capabilities"]["computeCapability"], "9.0");
  EXPECT_EQ(status["capabilities"]["flashAttention"][1], "3");
  EXPECT_EQ(status["driverVersion"], "470.82.01") << "the oldest";
  EXPECT_EQ(status["cpuArchitectures"][0], "amd64");

  Json object = yaml("{apiVersion: plimsoll.dev/v1alpha1, kind: GPUModel, metadata: {name: a100-80gb}}");
  object["status"] = status;
  const auto back =
      estimator::inventory_of({*crds::decode_gpu_model(object)}, estimator::GpuCatalog::built_in());
  ASSERT_EQ(back.size(), 1U);
  EXPECT_EQ(back[0].model.compute_capability, (estimator::ComputeCapability{9, 0}));
  EXPECT_EQ(back[0].oldest_driver, estimator::parse_driver_version("470.82.01"));
  EXPECT_EQ(back[0].cpu_architectures, std::vector<std::string>{"amd64"});
}

TEST(SharedGpus, AreToldByTheirStrategyToo) {
  Json node = yaml(node_text("n1", "NVIDIA-A100-SXM4-80GB", 8));
  node["metadata"]["labels"]["nvidia.com/gpu.sharing-strategy"] = "none";
  EXPECT_EQ(estimator::decode_node(project_node(node))->product, "NVIDIA-A100-SXM4-80GB");
  node["metadata"]["labels"]["nvidia.com/gpu.sharing-strategy"] = "mps";
  EXPECT_EQ(estimator::decode_node(project_node(node))->product, "NVIDIA-A100-SXM4-80GB-SHARED");
  node["metadata"]["labels"]["nvidia.com/gpu.product"] = "NVIDIA-A100-SXM4-80GB-SHARED";
  EXPECT_EQ(estimator::decode_node(project_node(node))->product, "NVIDIA-A100-SXM4-80GB-SHARED");
}

}  // namespace
}  // namespace plimsoll::controllers
