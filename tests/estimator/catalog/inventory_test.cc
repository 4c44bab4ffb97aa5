#include <gtest/gtest.h>

#include "base/json/json.h"
#include "estimator/catalog/inventory.h"

namespace plimsoll::estimator {
namespace {

Json node_object(const std::string& name) {
  Json node;
  node["apiVersion"] = "v1";
  node["kind"] = "Node";
  node["metadata"]["name"] = name;
  node["metadata"]["labels"]["nvidia.com/gpu.product"] = "NVIDIA-A100-SXM4-80GB";
  node["metadata"]["labels"]["nvidia.com/gpu.memory"] = "81920";
  node["status"]["allocatable"]["nvidia.com/gpu"] = "8";
  Json ready;
  ready["type"] = "Ready";
  ready["status"] = "True";
  node["status"]["conditions"].append(ready);
  return node;
}

Json taint(const char* key, const char* effect) {
  Json result;
  result["key"] = key;
  result["effect"] = effect;
  return result;
}

GpuNode decoded(const Json& object) {
  Result<GpuNode> node = decode_node(object);
  EXPECT_TRUE(node.ok());
  return node ? *node : GpuNode{};
}

GpuNode gpu_node(const std::string& product, std::int64_t mib = 0, std::int64_t gpus = 8) {
  return {.name = "n", .product = product, .gpus = gpus, .memory_per_gpu = Bytes::from_mib(mib)};
}

TEST(DecodeNode, ReadsWhatFeatureDiscoveryWrites) {
  const GpuNode node = decoded(node_object("gpu-1"));
  EXPECT_EQ(node.name, "gpu-1");
  EXPECT_EQ(node.product, "NVIDIA-A100-SXM4-80GB");
  EXPECT_EQ(node.gpus, 8);
  EXPECT_EQ(node.memory_per_gpu, 80_GiB);
  EXPECT_TRUE(node.schedulable);
}

TEST(DecodeNode, ReadsTheDriverFromAnyOfItsLabels) {
  Json node = node_object("gpu-1");
  EXPECT_EQ(decoded(node).driver, std::nullopt);
  EXPECT_EQ(decoded(node).compute_capability, std::nullopt);
  ::Json::Value& labels = node["metadata"]["labels"];
  labels["nvidia.com/cuda.driver.major"] = "470";
  labels["nvidia.com/cuda.driver.minor"] = "82";
  EXPECT_EQ(decoded(node).driver, parse_driver_version("470.82"));
  labels["nvidia.com/cuda.driver.rev"] = "01";
  EXPECT_EQ(decoded(node).driver, parse_driver_version("470.82.01"));
  labels["nvidia.com/cuda.driver-version.full"] = "535.104.12";
  EXPECT_EQ(decoded(node).driver, parse_driver_version("535.104.12"));
  labels["nvidia.com/gpu.compute.major"] = "8";
  EXPECT_EQ(decoded(node).compute_capability, std::nullopt) << "half of it";
  labels["nvidia.com/gpu.compute.minor"] = "6";
  EXPECT_EQ(decoded(node).compute_capability, (ComputeCapability{8, 6}));
}

TEST(DecodeNode, AnItemOfAListHasNoKind) {
  Json node = node_object("gpu-1");
  node.removeMember("kind");
  node.removeMember("apiVersion");
  EXPECT_TRUE(decode_node(node).ok());
}

TEST(DecodeNode, RefusesWhatIsNoNode) {
  Json pod = node_object("p");
  pod["kind"] = "Pod";
  Json nameless = node_object("x");
  nameless["metadata"].removeMember("name");
  for (const Json& object : {pod, nameless, Json(), Json("text"), Json(::Json::arrayValue), Json(7)}) {
    const Result<GpuNode> node = decode_node(object);
    ASSERT_FALSE(node.ok());
    EXPECT_EQ(node.error().code, ErrorCode::kInvalid);
  }
}

TEST(DecodeNode, FieldsOfTheWrongTypeAreAsIfMissing) {
  Json node = node_object("x");
  node["metadata"]["labels"] = "text";
  node["spec"] = 3;
  node["status"]["conditions"] = "text";
  node["status"]["allocatable"]["nvidia.com/gpu"] = ::Json::objectValue;
  const GpuNode read = decoded(node);
  EXPECT_EQ(read.product, "");
  EXPECT_EQ(read.gpus, 0);
}

TEST(DecodeNode, TheMemoryLabelMustBeACountOfMiB) {
  for (const char* text : {"", "0", "-81920", "81920Mi", "8e4", "85899345920", "99999999999999999999"}) {
    Json node = node_object("x");
    node["metadata"]["labels"]["nvidia.com/gpu.memory"] = text;
    EXPECT_EQ(decoded(node).memory_per_gpu.count, 0) << text;
  }
  Json node = node_object("x");
  node["metadata"]["labels"].removeMember("nvidia.com/gpu.memory");
  EXPECT_EQ(decoded(node).memory_per_gpu.count, 0);
}

TEST(DecodeNode, GpuCountsThatAreNoneCountNothing) {
  for (const Json& count : {Json("0"), Json("-1"), Json("many"), Json("1e30"), Json(-3)}) {
    Json node = node_object("x");
    node["status"]["allocatable"]["nvidia.com/gpu"] = count;
    EXPECT_EQ(decoded(node).gpus, 0) << write_json(count);
  }
  Json node = node_object("x");
  node["status"]["allocatable"]["nvidia.com/gpu"] = 4;
  EXPECT_EQ(decoded(node).gpus, 4);
}

TEST(DecodeNode, NodesThatTakeNoPods) {
  Json cordoned = node_object("x");
  cordoned["spec"]["unschedulable"] = true;
  EXPECT_FALSE(decoded(cordoned).schedulable);

  for (const char* status : {"False", "Unknown"}) {
    Json not_ready = node_object("x");
    not_ready["status"]["conditions"][0]["status"] = status;
    EXPECT_FALSE(decoded(not_ready).schedulable) << status;
  }
  for (const char* effect : {"NoSchedule", "NoExecute"}) {
    Json tainted = node_object("x");
    tainted["spec"]["taints"].append(taint("team", effect));
    EXPECT_FALSE(decoded(tainted).schedulable) << effect;
  }
}

TEST(DecodeNode, TaintsThatDoNotMatter) {
  Json node = node_object("x");
  node["spec"]["taints"].append(taint("nvidia.com/gpu", "NoSchedule"));
  node["spec"]["taints"].append(taint("nvidia.com/gpu", "NoExecute"));
  node["spec"]["taints"].append(taint("team", "PreferNoSchedule"));
  EXPECT_TRUE(decoded(node).schedulable);
  // A node without conditions counts as ready.
  node["status"].removeMember("conditions");
  EXPECT_TRUE(decoded(node).schedulable);
}

TEST(DecodeNode, FallsBackToTheCloudsLabels) {
  Json node = node_object("x");
  node["metadata"]["labels"].clear();
  node["metadata"]["labels"]["cloud.google.com/gke-accelerator"] = "nvidia-tesla-t4";
  EXPECT_EQ(decoded(node).product, "cloud.google.com/gke-accelerator=nvidia-tesla-t4");
  const NodeLabel label = parse_product_label(decoded(node).product);
  EXPECT_EQ(label.key, "cloud.google.com/gke-accelerator");
  EXPECT_EQ(label.value, "nvidia-tesla-t4");

  node["metadata"]["labels"].clear();
  node["metadata"]["labels"]["karpenter.k8s.aws/instance-gpu-name"] = "l4";
  node["metadata"]["labels"]["karpenter.k8s.aws/instance-gpu-memory"] = "22888";
  EXPECT_EQ(decoded(node).product, "karpenter.k8s.aws/instance-gpu-name=l4");
  EXPECT_EQ(decoded(node).memory_per_gpu, Bytes::from_mib(22888));

  EXPECT_EQ(parse_product_label("NVIDIA-L4").key, "nvidia.com/gpu.product");
}

TEST(TakeInventory, TheLeastMemorySeenCounts) {
  // Three drivers, three values of one model (A100 40 GB).
  const std::vector<GpuNode> nodes = {
      gpu_node("NVIDIA-A100-SXM4-40GB", 40960), gpu_node("A100-SXM4-40GB", 39538),
      gpu_node("NVIDIA-A100-SXM4-40GB", 40536), gpu_node("NVIDIA-A100-SXM4-40GB", 0)};
  const std::vector<AvailableGpu> inventory = take_inventory(nodes, GpuCatalog::built_in());
  ASSERT_EQ(inventory.size(), 1u);
  EXPECT_EQ(inventory[0].model.name, "A100-40GB");
  EXPECT_EQ(inventory[0].model.memory, Bytes::from_mib(39538));
  EXPECT_EQ(inventory[0].total_gpus, 32);
  EXPECT_EQ(inventory[0].product_labels,
            (std::vector<std::string>{"A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB"}));
}

TEST(TakeInventory, WithoutMemoryLabelsTheCatalogueSpeaks) {
  const std::vector<AvailableGpu> inventory =
      take_inventory({gpu_node("NVIDIA-H100-80GB-HBM3")}, GpuCatalog::built_in());
  ASSERT_EQ(inventory.size(), 1u);
  EXPECT_EQ(inventory[0].model.reported_memory(), Bytes::from_mib(81559));
}

TEST(TakeInventory, CountsShapesAndWhatIsFree) {
  std::vector<GpuNode> nodes = {gpu_node("NVIDIA-L4", 23034, 4), gpu_node("NVIDIA-L4", 23034, 4),
                                gpu_node("NVIDIA-L4", 23034, 8)};
  nodes[0].requested_gpus = 3;
  nodes[1].requested_gpus = 9;  // more than the node has: a pod is terminating
  const std::vector<AvailableGpu> inventory = take_inventory(nodes, GpuCatalog::built_in());
  ASSERT_EQ(inventory.size(), 1u);
  EXPECT_EQ(inventory[0].total_gpus, 16);
  EXPECT_EQ(inventory[0].free_gpus, 9);
  EXPECT_EQ(inventory[0].gpus_per_node, 4);
  ASSERT_EQ(inventory[0].shapes.size(), 2u);
  EXPECT_EQ(inventory[0].shapes[0].gpus_per_node, 4);
  EXPECT_EQ(inventory[0].shapes[0].nodes, 2);
  EXPECT_EQ(inventory[0].shapes[1].nodes, 1);
  ASSERT_EQ(inventory[0].free_nodes.size(), 2u) << "the node without a free GPU is left out";
  EXPECT_EQ(inventory[0].free_nodes[0].gpus_per_node, 1);
  EXPECT_EQ(inventory[0].free_nodes[1].gpus_per_node, 8);
}

TEST(TakeInventory, SharedSlicedAndUnknownGpusAreTold) {
  std::vector<GpuNode> nodes = {gpu_node("NVIDIA-A100-SXM4-80GB-SHARED"),
                                gpu_node("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"),
                                gpu_node("AMD-Something"),
                                gpu_node("AMD-Something"),
                                gpu_node(""),
                                gpu_node("Tesla-K80", 11441, 0),
                                gpu_node("NVIDIA-A100-SXM4-80GB")};
  nodes.back().schedulable = false;
  std::vector<std::string> unknown = {"left over"};
  EXPECT_TRUE(take_inventory(nodes, GpuCatalog::built_in(), &unknown).empty());
  EXPECT_EQ(unknown, (std::vector<std::string>{"", "AMD-Something", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
                                               "NVIDIA-A100-SXM4-80GB-SHARED"}));
}

TEST(TakeInventory, OneKeyMustSelectAllNodesOfAModel) {
  const std::string gke = "cloud.google.com/gke-accelerator=nvidia-l4";
  // If any node has feature discovery's label, nodes without it are left out.
  std::vector<AvailableGpu> inventory =
      take_inventory({gpu_node(gke), gpu_node(gke), gpu_node("NVIDIA-L4")}, GpuCatalog::built_in());
  ASSERT_EQ(inventory.size(), 1u);
  EXPECT_EQ(inventory[0].product_labels, std::vector<std::string>{"NVIDIA-L4"});
  EXPECT_EQ(inventory[0].total_gpus, 8);
  // Without it, the most common cloud label is used.
  inventory =
      take_inventory({gpu_node(gke), gpu_node(gke), gpu_node("k8s.amazonaws.com/accelerator=nvidia-l4")},
                     GpuCatalog::built_in());
  ASSERT_EQ(inventory.size(), 1u);
  EXPECT_EQ(inventory[0].product_labels, std::vector<std::string>{gke});
  EXPECT_EQ(inventory[0].total_gpus, 16);
}

TEST(TakeInventory, ModelsComeByName) {
  const std::vector<AvailableGpu> inventory =
      take_inventory({gpu_node("Tesla-V100-SXM2-32GB"), gpu_node("NVIDIA-A100-SXM4-80GB"),
                      gpu_node("NVIDIA-H100-80GB-HBM3")},
                     GpuCatalog::built_in());
  ASSERT_EQ(inventory.size(), 3u);
  EXPECT_EQ(inventory[0].model.name, "A100-80GB");
  EXPECT_EQ(inventory[1].model.name, "H100-80GB");
  EXPECT_EQ(inventory[2].model.name, "V100-32GB");
}

TEST(CanStart, EachPodFindsItsGpusOnOneNode) {
  AvailableGpu gpu;
  gpu.free_gpus = 16;
  EXPECT_TRUE(can_start(gpu, 16, 8)) << "how they are spread is not known";
  EXPECT_FALSE(can_start(gpu, 17, 8));
  gpu.free_nodes = {{.gpus_per_node = 4, .nodes = 4}};
  EXPECT_FALSE(can_start(gpu, 16, 8));
  EXPECT_FALSE(can_start(gpu, 8, 8));
  EXPECT_TRUE(can_start(gpu, 4, 8)) << "its one pod takes four";
  EXPECT_FALSE(can_start(gpu, 5, 8));
  EXPECT_TRUE(can_start(gpu, 16, 4));
  EXPECT_TRUE(can_start(gpu, 16, 1));
  gpu.free_gpus = 24;
  gpu.free_nodes.push_back({.gpus_per_node = 8, .nodes = 1});
  EXPECT_TRUE(can_start(gpu, 8, 8));
  EXPECT_FALSE(can_start(gpu, 16, 8));
  EXPECT_TRUE(can_start(gpu, 24, 4)) << "the node of eight takes two pods";
  EXPECT_TRUE(can_start(gpu, 0, 0));
}

TEST(InventoryOf, CountsAsTheOperatorWrote) {
  const std::vector<GpuNode> nodes = {gpu_node("NVIDIA-A100-SXM4-40GB", 40536),
                                      gpu_node("A100-SXM4-40GB", 39538, 4)};
  const AvailableGpu counted = take_inventory(nodes, GpuCatalog::built_in()).at(0);
  crds::GpuModel resource;
  resource.name = "a100-40gb";
  resource.status = {.total_gpus = counted.total_gpus,
                     .free_gpus = counted.free_gpus,
                     .nodes = counted.shapes,
                     .product_labels = counted.product_labels,
                     .memory = counted.model.reported_memory(),
                     .free_nodes = counted.free_nodes};
  const std::vector<AvailableGpu> read = inventory_of({resource}, GpuCatalog::built_in());
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].model.name, counted.model.name);
  EXPECT_EQ(read[0].model.memory, counted.model.memory);
  EXPECT_EQ(read[0].product_labels, counted.product_labels);
  EXPECT_EQ(read[0].total_gpus, 12);
  EXPECT_EQ(read[0].free_gpus, 12);
  EXPECT_EQ(read[0].free_nodes.size(), 2u);
  EXPECT_EQ(read[0].gpus_per_node, counted.gpus_per_node);
}

TEST(InventoryOf, ReadsModelsThatOnlyAResourceKnows) {
  crds::GpuModel custom;
  custom.name = "x100";
  custom.spec.memory = 200_GiB;
  custom.status.total_gpus = 8;
  custom.status.free_gpus = 99;
  crds::GpuModel absent;
  absent.name = "a100-80gb";  // in the catalogue, but not in the cluster
  crds::GpuModel shapeless;
  shapeless.name = "nobody-knows";
  shapeless.status.total_gpus = 8;
  const std::vector<AvailableGpu> inventory =
      inventory_of({custom, absent, shapeless}, GpuCatalog::built_in());
  ASSERT_EQ(inventory.size(), 1u);
  EXPECT_EQ(inventory[0].model.name, "x100");
  EXPECT_EQ(inventory[0].model.reported_memory(), 200_GiB);
  EXPECT_EQ(inventory[0].free_gpus, 8);
}

TEST(DecodeNode, ReadsHowItsGpusReachTheHost) {
  Json node = node_object("gpu-1");
  EXPECT_EQ(decoded(node).host_links, std::nullopt);
  ::Json::Value& labels = node["metadata"]["labels"];
  labels[kHostBandwidthLabel] = "24Gi";
  labels[kGpusPerRootLabel] = "2";
  labels[kPeerToPeerLabel] = "true";
  EXPECT_EQ(decoded(node).host_links,
            (crds::HostLinks{
                .bandwidth = 24_GiB, .gpus_per_root = 2, .peer_to_peer = crds::PeerToPeer::kSupported}));
  labels[kHostBandwidthLabel] = "fast";
  labels[kGpusPerRootLabel] = "-3";
  labels[kPeerToPeerLabel] = "yes";
  EXPECT_EQ(decoded(node).host_links, std::nullopt) << "labels that say nothing";
}

TEST(TakeInventory, TheWeakestLinksOfItsNodesCount) {
  GpuNode fast = gpu_node("NVIDIA-A100-SXM4-80GB");
  fast.host_links = {.bandwidth = 24_GiB, .gpus_per_root = 2, .peer_to_peer = crds::PeerToPeer::kSupported};
  GpuNode slow = fast;
  slow.host_links = {.bandwidth = 11_GiB, .gpus_per_root = 4, .peer_to_peer = crds::PeerToPeer::kUnsupported};
  const std::vector<AvailableGpu> gpus =
      take_inventory({fast, slow, gpu_node("NVIDIA-A100-SXM4-80GB")}, GpuCatalog::built_in());
  ASSERT_EQ(gpus.size(), 1U);
  EXPECT_EQ(gpus[0].host_links, slow.host_links);
  EXPECT_EQ(gpus[0].model.host_links, *slow.host_links);
}

TEST(InventoryOf, LabelsComeBeforeWhatAGpuModelSaysOfLinks) {
  crds::GpuModel resource;
  resource.name = "a100-80gb";
  resource.spec.host_links = {
      .bandwidth = 20_GiB, .gpus_per_root = 8, .peer_to_peer = crds::PeerToPeer::kSupported};
  resource.status.total_gpus = 8;
  resource.status.host_links = {
      .bandwidth = 24_GiB, .gpus_per_root = 0, .peer_to_peer = crds::PeerToPeer::kAuto};
  const std::vector<AvailableGpu> gpus = inventory_of({resource}, GpuCatalog::built_in());
  ASSERT_EQ(gpus.size(), 1U);
  EXPECT_EQ(gpus[0].model.host_links,
            (crds::HostLinks{
                .bandwidth = 24_GiB, .gpus_per_root = 8, .peer_to_peer = crds::PeerToPeer::kSupported}));
}

}  // namespace
}  // namespace plimsoll::estimator
