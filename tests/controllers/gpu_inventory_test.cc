#include "controllers/gpu_inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include "base/yaml.h"
#include "tests/controllers/memory_cluster.h"

namespace plimsoll::controllers {
namespace {

using plimsoll::testing::MemoryCluster;
using std::chrono::milliseconds;

Json yaml(const std::string& text) {
  return parse_yaml_documents(text)->front();
}

Json node(const std::string& name, const std::string& product, int gpus) {
  return yaml("apiVersion: v1\nkind: Node\nmetadata: {name: " + name + ", labels: {nvidia.com/gpu.product: " +
              product + ", nvidia.com/gpu.memory: '81920'}}\nstatus: {allocatable: {nvidia.com/gpu: '" +
              std::to_string(gpus) + "'}, conditions: [{type: Ready, status: 'True'}]}\n");
}

Json pod(const std::string& name, const std::string& node_name, int gpus) {
  return yaml("apiVersion: v1\nkind: Pod\nmetadata: {name: " + name +
              ", namespace: ns}\nspec: {nodeName: " + node_name +
              ", containers: [{name: c, resources: {limits: {nvidia.com/gpu: " + std::to_string(gpus) +
              "}}}]}\nstatus: {phase: Running}\n");
}

class GpuInventoryTest : public ::testing::Test {
 protected:
  static GpuInventoryController::Options fast() {
    GpuInventoryController::Options options;
    options.burst = milliseconds(5);
    options.retry.initial = milliseconds(5);
    options.retry.cap = milliseconds(50);
    return options;
  }

  // "total/free" of a GPUModel's status, or "" when there is none.
  std::string counts(const std::string& name) {
    const std::optional<Json> model = cluster_.find("gpumodels", name);
    if (!model || !model->isMember("status")) {
      return "";
    }
    return (*model)["status"]["totalGPUs"].asString() + "/" + (*model)["status"]["freeGPUs"].asString();
  }

  bool eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 3'000; ++i) {
      if (holds()) {
        return true;
      }
      std::this_thread::sleep_for(milliseconds(5));
    }
    return false;
  }

  MemoryCluster cluster_;
};

TEST_F(GpuInventoryTest, CountsNodesAndPodsAndFollowsThem) {
  cluster_.put("nodes", node("n1", "NVIDIA-A100-SXM4-80GB", 8));
  cluster_.put("pods", pod("p1", "n1", 4));
  GpuInventoryController inventory(cluster_, estimator::GpuCatalog::built_in(), fast());
  EXPECT_FALSE(inventory.ready());
  inventory.start();
  EXPECT_TRUE(eventually([&] { return counts("a100-80gb") == "8/4"; })) << counts("a100-80gb");
  cluster_.put("nodes", node("n2", "NVIDIA-A100-SXM4-80GB", 8));
  EXPECT_TRUE(eventually([&] { return counts("a100-80gb") == "16/12"; })) << counts("a100-80gb");
  cluster_.erase("pods", "ns/p1");
  EXPECT_TRUE(eventually([&] { return counts("a100-80gb") == "16/16"; })) << counts("a100-80gb");
  cluster_.erase("nodes", "n1");
  cluster_.erase("nodes", "n2");
  EXPECT_TRUE(eventually([&] { return counts("a100-80gb") == "0/0"; })) << counts("a100-80gb");
  EXPECT_TRUE(inventory.ready());
}

TEST_F(GpuInventoryTest, WritesNothingWhenNothingChanged) {
  cluster_.put("nodes", node("n1", "NVIDIA-A100-SXM4-80GB", 8));
  GpuInventoryController inventory(cluster_, estimator::GpuCatalog::built_in(), fast());
  inventory.start();
  ASSERT_TRUE(eventually([&] { return counts("a100-80gb") == "8/8"; }));
  std::this_thread::sleep_for(milliseconds(100));
  const int writes = cluster_.writes();
  for (int i = 0; i < 20; ++i) {  // heartbeats
    cluster_.put("nodes", node("n1", "NVIDIA-A100-SXM4-80GB", 8));
    std::this_thread::sleep_for(milliseconds(5));
  }
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(cluster_.writes(), writes);
}

TEST_F(GpuInventoryTest, ABurstIsOnePass) {
  GpuInventoryController::Options options = fast();
  options.burst = milliseconds(300);
  GpuInventoryController inventory(cluster_, estimator::GpuCatalog::built_in(), options);
  inventory.start();
  ASSERT_TRUE(eventually([&] { return inventory.ready(); }));
  for (int i = 0; i < 50; ++i) {
    cluster_.put("nodes", node("n" + std::to_string(i), "NVIDIA-A100-SXM4-80GB", 8));
  }
  ASSERT_TRUE(eventually([&] { return counts("a100-80gb") == "400/400"; }));
  EXPECT_LE(cluster_.writes(), 6);  // a create and a status for each pass, of which there are few
}

TEST_F(GpuInventoryTest, TriesAgainWhenWritesFail) {
  cluster_.put("nodes", node("n1", "NVIDIA-A100-SXM4-80GB", 8));
  cluster_.fail_writes(6);
  GpuInventoryController inventory(cluster_, estimator::GpuCatalog::built_in(), fast());
  inventory.start();
  EXPECT_TRUE(eventually([&] { return counts("a100-80gb") == "8/8"; }));
}

TEST_F(GpuInventoryTest, LearnsAModelFromAResource) {
  cluster_.put("nodes", node("n1", "NVIDIA-B999", 4));
  GpuInventoryController inventory(cluster_, estimator::GpuCatalog::built_in(), fast());
  inventory.start();
  ASSERT_TRUE(eventually([&] { return inventory.ready(); }));
  cluster_.put("gpumodels",
               yaml("apiVersion: plimsoll.dev/v1alpha1\nkind: GPUModel\nmetadata: {name: b999}\nspec: "
                    "{memory: 512Gi, productLabels: [NVIDIA-B999]}\n"));
  EXPECT_TRUE(eventually([&] { return counts("b999") == "4/4"; }));
}

TEST_F(GpuInventoryTest, ABrokenResourceStopsNobodyElse) {
  cluster_.put("gpumodels",
               yaml("apiVersion: plimsoll.dev/v1alpha1\nkind: GPUModel\nmetadata: {name: a100-80gb}\n"
                    "spec: {memory: many}\n"));
  cluster_.put("nodes", node("n1", "NVIDIA-A100-SXM4-80GB", 8));
  cluster_.put("nodes", node("n2", "NVIDIA-H100-80GB-HBM3", 8));
  GpuInventoryController inventory(cluster_, estimator::GpuCatalog::built_in(), fast());
  inventory.start();
  EXPECT_TRUE(eventually([&] {
    for (const std::string& name : cluster_.names("gpumodels")) {
      if (name.find("h100") != std::string::npos && counts(name) == "8/8") {
        return true;
      }
    }
    return false;
  }));
  EXPECT_EQ(counts("a100-80gb"), "");
}

TEST_F(GpuInventoryTest, TellsPrometheus) {
  prometheus::Registry registry;
  GpuInventoryController::Options options = fast();
  options.registry = &registry;
  cluster_.put("nodes", node("n1", "NVIDIA-A100-SXM4-80GB", 8));
  cluster_.put("pods", pod("p1", "n1", 2));
  {
    GpuInventoryController inventory(cluster_, estimator::GpuCatalog::built_in(), options);
    inventory.start();
    ASSERT_TRUE(eventually([&] { return counts("a100-80gb") == "8/6"; }));
  }
  const std::string text = prometheus::TextSerializer().Serialize(registry.Collect());
  EXPECT_THAT(text,
              ::testing::HasSubstr("plimsoll_inventory_gpus{gpu_model=\"a100-80gb\",state=\"free\"} 6"));
  EXPECT_THAT(text, ::testing::HasSubstr("plimsoll_inventory_passes_total{result=\"ok\"}"));
}

TEST_F(GpuInventoryTest, StopsWhileItStillWaitsForItsFirstLists) {
  cluster_.fail_reads(1'000'000);
  GpuInventoryController inventory(cluster_, estimator::GpuCatalog::built_in(), fast());
  inventory.start();
  std::this_thread::sleep_for(milliseconds(50));
  const auto began = std::chrono::steady_clock::now();
  inventory.stop();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
  EXPECT_FALSE(inventory.ready());
}

}  // namespace
}  // namespace plimsoll::controllers
