#include "controllers/gpu_inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <utility>

#include "base/yaml.h"
#include "tests/controllers/memory_cluster.h"
#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"

namespace plimsoll::controllers {
namespace {

using plimsoll::testing::eventually;
using plimsoll::testing::MemoryCluster;
using std::chrono::milliseconds;
using ::testing::Ge;

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

// The sum of a family of counters.
double counted(prometheus::Registry& registry, const std::string& name) {
  double sum = 0;
  for (const prometheus::MetricFamily& family : registry.Collect()) {
    if (family.name == name) {
      for (const prometheus::ClientMetric& metric : family.metric) {
        sum += metric.counter.value;
      }
    }
  }
  return sum;
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

  // Waits until the model has such counts.
  ::testing::AssertionResult becomes(const std::string& name, const std::string& expected) {
    return eventually(
        "the counts of " + name, [&] { return counts(name); }, expected);
  }

  MemoryCluster cluster_;
};

TEST_F(GpuInventoryTest, CountsNodesAndPodsAndFollowsThem) {
  cluster_.put("nodes", node("n1", "NVIDIA-A100-SXM4-80GB", 8));
  cluster_.put("pods", pod("p1", "n1", 4));
  GpuInventoryController inventory(cluster_, estimator::GpuCatalog::built_in(), fast());
  EXPECT_FALSE(inventory.ready());
  inventory.start();
  EXPECT_TRUE(becomes("a100-80gb", "8/4"));
  cluster_.put("nodes", node("n2", "NVIDIA-A100-SXM4-80GB", 8));
  EXPECT_TRUE(becomes("a100-80gb", "16/12"));
  cluster_.erase("pods", "ns/p1");
  EXPECT_TRUE(becomes("a100-80gb", "16/16"));
  cluster_.erase("nodes", "n1");
  cluster_.erase("nodes", "n2");
  EXPECT_TRUE(becomes("a100-80gb", "0/0"));
  EXPECT_TRUE(inventory.ready());
}

TEST_F(GpuInventoryTest, WritesNothingWhenNothingChanged) {
  prometheus::Registry registry;
  GpuInventoryController::Options options = fast();
  options.registry = &registry;
  cluster_.put("nodes", node("n1", "NVIDIA-A100-SXM4-80GB", 8));
  GpuInventoryController inventory(cluster_, estimator::GpuCatalog::built_in(), options);
  inventory.start();
  ASSERT_TRUE(becomes("a100-80gb", "8/8"));
  const auto writes_after_a_heartbeat = [&] {
    const auto passes = [&] { return counted(registry, "plimsoll_inventory_passes_total"); };
    const double before = passes();
    for (int i = 1; i <= 2; ++i) {  // the first may be of a pass that was under way
      cluster_.put("nodes", node("n1", "NVIDIA-A100-SXM4-80GB", 8));
      EXPECT_TRUE(eventually("a pass", passes, Ge(before + i)));
    }
    return cluster_.writes();
  };
  // What it wrote comes back to it by its watch; before that it may try once more.
  int writes = cluster_.writes();
  ASSERT_TRUE(eventually("a pass that knows what it wrote", [&] {
    const int before = std::exchange(writes, writes_after_a_heartbeat());
    return writes == before;
  }));
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(writes_after_a_heartbeat(), writes);
  }
}

TEST_F(GpuInventoryTest, ABurstIsOnePass) {
  GpuInventoryController::Options options = fast();
  options.burst = milliseconds(300);
  GpuInventoryController inventory(cluster_, estimator::GpuCatalog::built_in(), options);
  inventory.start();
  ASSERT_TRUE(eventually("the inventory is ready", [&] { return inventory.ready(); }));
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 50; ++i) {
    cluster_.put("nodes", node("n" + std::to_string(i), "NVIDIA-A100-SXM4-80GB", 8));
  }
  ASSERT_TRUE(becomes("a100-80gb", "400/400"));
  // Between two passes there is the time of a burst. Each writes one status, and one of them creates the model.
  const auto most_passes = (std::chrono::steady_clock::now() - began) / options.burst + 2;
  EXPECT_LE(cluster_.writes(), most_passes + 1);
}

TEST_F(GpuInventoryTest, TriesAgainWhenWritesFail) {
  cluster_.put("nodes", node("n1", "NVIDIA-A100-SXM4-80GB", 8));
  cluster_.fail_writes(6);
  GpuInventoryController inventory(cluster_, estimator::GpuCatalog::built_in(), fast());
  inventory.start();
  EXPECT_TRUE(becomes("a100-80gb", "8/8"));
}

TEST_F(GpuInventoryTest, LearnsAModelFromAResource) {
  cluster_.put("nodes", node("n1", "NVIDIA-B999", 4));
  GpuInventoryController inventory(cluster_, estimator::GpuCatalog::built_in(), fast());
  inventory.start();
  ASSERT_TRUE(eventually("the inventory is ready", [&] { return inventory.ready(); }));
  cluster_.put("gpumodels",
               yaml("apiVersion: plimsoll.dev/v1alpha1\nkind: GPUModel\nmetadata: {name: b999}\nspec: "
                    "{memory: 512Gi, productLabels: [NVIDIA-B999]}\n"));
  EXPECT_TRUE(becomes("b999", "4/4"));
}

TEST_F(GpuInventoryTest, ABrokenResourceStopsNobodyElse) {
  cluster_.put("gpumodels",
               yaml("apiVersion: plimsoll.dev/v1alpha1\nkind: GPUModel\nmetadata: {name: a100-80gb}\n"
                    "spec: {memory: many}\n"));
  cluster_.put("nodes", node("n1", "NVIDIA-A100-SXM4-80GB", 8));
  cluster_.put("nodes", node("n2", "NVIDIA-H100-80GB-HBM3", 8));
  GpuInventoryController inventory(cluster_, estimator::GpuCatalog::built_in(), fast());
  inventory.start();
  EXPECT_TRUE(eventually("the other model is counted", [&] {
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
    ASSERT_TRUE(becomes("a100-80gb", "8/6"));
  }
  const std::string text = prometheus::TextSerializer().Serialize(registry.Collect());
  EXPECT_THAT(text,
              ::testing::HasSubstr("plimsoll_inventory_gpus{gpu_model=\"a100-80gb\",state=\"free\"} 6"));
  EXPECT_THAT(text, ::testing::HasSubstr("plimsoll_inventory_passes_total{result=\"ok\"}"));
}

TEST_F(GpuInventoryTest, StopsWhileItStillWaitsForItsFirstLists) {
  prometheus::Registry registry;
  GpuInventoryController::Options options = fast();
  options.registry = &registry;
  cluster_.fail_reads(1'000'000);
  GpuInventoryController inventory(cluster_, estimator::GpuCatalog::built_in(), options);
  inventory.start();
  ASSERT_TRUE(eventually(
      "a first list", [&] { return counted(registry, "reflector_lists_total"); }, Ge(1)));
  const auto began = std::chrono::steady_clock::now();
  inventory.stop();
  EXPECT_LT(std::chrono::steady_clock::now() - began, plimsoll::testing::kPatience);
  EXPECT_FALSE(inventory.ready());
}

}  // namespace
}  // namespace plimsoll::controllers
