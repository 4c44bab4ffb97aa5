#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "estimator/catalog/gpu_catalog.h"

namespace plimsoll::estimator {
namespace {

std::string name_for(const GpuCatalog& catalog, const std::string& label) {
  const GpuModel* model = catalog.find(label);
  return model == nullptr ? "" : model->name;
}

crds::GpuModel resource(const std::string& name) {
  crds::GpuModel gpu;
  gpu.name = name;
  return gpu;
}

// Labels of real nodes and manifests: GPU feature discovery, old drivers, and the clouds.
TEST(GpuCatalog, NamesAsPeopleWriteThem) {
  const GpuCatalog catalog = GpuCatalog::built_in();
  for (const char* name : {"RTX 3060", "rtx-3060", "NVIDIA GeForce RTX 3060", "NVIDIA-GeForce-RTX-3060"}) {
    const GpuModel* gpu = catalog.find(name);
    ASSERT_NE(gpu, nullptr) << name;
    EXPECT_EQ(gpu->reported_memory(), 12_GiB) << name;
    EXPECT_EQ(gpu->family, "ampere") << name;
  }
  EXPECT_EQ(catalog.find("RTX 3060 MIG 1g"), catalog.find("RTX-3060-MIG-1g"));
  EXPECT_EQ(catalog.find(" "), nullptr);
}

TEST(GpuCatalog, KnowsEverySpelling) {
  const GpuCatalog catalog = GpuCatalog::built_in();
  const std::pair<const char*, const char*> spellings[] = {
      {"Tesla-V100-SXM2-16GB", "V100-16GB"},
      {"Tesla-V100-PCIE-16GB", "V100-16GB"},
      {"Tesla-V100-SXM2-32GB", "V100-32GB"},
      {"Tesla-V100-PCIE-32GB", "V100-32GB"},
      {"Tesla-V100-SXM2-32GB-LS", "V100-32GB"},
      {"Tesla-T4", "T4"},
      {"NVIDIA-A10", "A10"},
      {"NVIDIA-A10G", "A10G"},
      {"NVIDIA-A30", "A30"},
      {"NVIDIA-A40", "A40"},
      {"NVIDIA-RTX-A6000", "RTX-A6000"},
      {"NVIDIA-A100-SXM4-40GB", "A100-40GB"},
      {"NVIDIA-A100-PCIE-40GB", "A100-40GB"},
      {"A100-SXM4-40GB", "A100-40GB"},
      {"NVIDIA-A100-SXM4-80GB", "A100-80GB"},
      {"NVIDIA-A100-80GB-PCIe", "A100-80GB"},
      {"A100-SXM4-80GB", "A100-80GB"},
      {"NVIDIA-H100-80GB-HBM3", "H100-80GB"},
      {"NVIDIA-H100-PCIe", "H100-PCIe"},
      {"NVIDIA-H100-NVL", "H100-NVL"},
      {"NVIDIA-GH200-480GB", "GH200"},
      {"NVIDIA-H200", "H200"},
      {"NVIDIA-H200-NVL", "H200-NVL"},
      {"NVIDIA-L4", "L4"},
      {"NVIDIA-L40", "L40"},
      {"NVIDIA-L40S", "L40S"},
      {"NVIDIA-B200", "B200"},
      {"NVIDIA-B300-SXM6-AC", "B300"},
      {"NVIDIA-GB200", "GB200"},
      {"NVIDIA-GB300", "GB300"},
      {"NVIDIA-GB10", "GB10"},
      {"nvidia-tesla-t4", "T4"},
      {"nvidia-tesla-v100", "V100-16GB"},
      {"nvidia-tesla-a100", "A100-40GB"},
      {"nvidia-a100-80gb", "A100-80GB"},
      {"nvidia-l4", "L4"},
      {"nvidia-h100-80gb", "H100-80GB"},
      {"nvidia-h100-mega-80gb", "H100-80GB"},
      {"nvidia-h200-141gb", "H200"},
      {"nvidia-b200", "B200"},
      {"nvidia-a10g", "A10G"},
      {"nvidia-l40s", "L40S"},
  };
  for (const auto& [label, name] : spellings) {
    EXPECT_EQ(name_for(catalog, label), name) << label;
  }
}

TEST(GpuCatalog, FindsByNameInAnyCase) {
  const GpuCatalog catalog = GpuCatalog::built_in();
  EXPECT_EQ(name_for(catalog, "a100-80gb"), "A100-80GB");
  EXPECT_EQ(name_for(catalog, "A100-80GB"), "A100-80GB");
  EXPECT_EQ(name_for(catalog, "A100"), "A100-40GB");  // Karpenter's name has no memory size: the smaller one
  EXPECT_EQ(catalog.find(""), nullptr);
  EXPECT_EQ(catalog.find("NVIDIA-A100"), nullptr);
  EXPECT_EQ(catalog.find("Radeon-Instinct-MI300X"), nullptr);
}

TEST(GpuCatalog, SharedGpusAndMigSlicesAreNotTheWholeCard) {
  const GpuCatalog catalog = GpuCatalog::built_in();
  for (const char* label :
       {"NVIDIA-A100-SXM4-80GB-SHARED", "Tesla-T4-SHARED", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
        "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb", "NVIDIA-A100-SXM4-80GB-MIG-INVALID"}) {
    EXPECT_EQ(catalog.find(label), nullptr) << label;
  }
}

TEST(GpuCatalog, NoLabelMeansTwoModelsAndNoFigureIsMissing) {
  const GpuCatalog catalog = GpuCatalog::built_in();
  std::set<std::string> seen;
  for (const GpuModel& model : catalog.models()) {
    EXPECT_GT(model.memory, 7_GiB) << model.name;
    EXPECT_GT(model.hbm_bandwidth.count, 150'000'000'000) << model.name;
    EXPECT_GT(model.intra_node_bandwidth, model.inter_node_bandwidth) << model.name;
    EXPECT_GT(model.relative_cost, 0) << model.name;
    EXPECT_FALSE(model.family.empty()) << model.name;
    EXPECT_FALSE(model.product_labels.empty()) << model.name;
    for (const auto* labels : {&model.product_labels, &model.cloud_labels}) {
      for (const std::string& label : *labels) {
        EXPECT_TRUE(seen.insert(label).second) << label;
      }
    }
  }
}

// The catalogue had what nodes report, 0.2 to 0.9 GiB more than PyTorch could allocate.
TEST(GpuCatalog, MemoryIsWhatCudaGivesToProcesses) {
  const GpuCatalog catalog = GpuCatalog::built_in();
  EXPECT_EQ(catalog.find("A100-80GB")->memory, Bytes::from_mib(81'038));
  EXPECT_EQ(catalog.find("A100-80GB")->reported_memory(), 80_GiB);
  EXPECT_EQ(catalog.find("V100-32GB")->memory, Bytes::from_mib(32'480));
  EXPECT_EQ(catalog.find("K80")->memory, catalog.find("K80")->reported_memory());
  for (const GpuModel& gpu : catalog.models()) {
    // What a model that the catalogue does not know would lose.
    GpuCatalog other = catalog;
    crds::GpuModel unknown = resource("unknown");
    unknown.spec.memory = gpu.reported_memory();
    ASSERT_TRUE(other.apply(unknown).ok());
    EXPECT_GE(gpu.memory, other.find("unknown")->memory) << gpu.name;
    EXPECT_EQ(other.find("unknown")->reported_memory(), gpu.reported_memory());
  }
}

TEST(GpuCatalog, OlderDriversReportWhatCudaGivesOrALittleMore) {
  const GpuModel a100 = *GpuCatalog::built_in().find("A100-40GB");
  const auto reports = [&](std::int64_t mib) {
    GpuModel gpu = a100;
    gpu.set_reported_memory(Bytes::from_mib(mib));
    EXPECT_EQ(gpu.reported_memory(), Bytes::from_mib(mib));
    return gpu.memory;
  };
  EXPECT_EQ(reports(40'960), a100.memory);
  EXPECT_EQ(reports(40'536), a100.memory);
  EXPECT_EQ(reports(39'538), Bytes::from_mib(39'538));
  EXPECT_EQ(reports(49'152), a100.memory + 8_GiB) << "another card of that name";
}

TEST(GpuCatalog, AResourceOverridesWhatItSetsAndNothingElse) {
  GpuCatalog catalog = GpuCatalog::built_in();
  const GpuModel before = *catalog.find("A100-80GB");
  crds::GpuModel gpu = resource("a100-80gb");
  gpu.spec.memory = 79_GiB;
  gpu.spec.inter_node_bandwidth = 25_GiB;
  gpu.spec.product_labels = {"Our-A100"};
  ASSERT_TRUE(catalog.apply(gpu).ok());

  const GpuModel& after = *catalog.find("Our-A100");
  EXPECT_EQ(after.name, "A100-80GB");
  EXPECT_EQ(after.reported_memory(), 79_GiB);
  EXPECT_EQ(after.inter_node_bandwidth, 25_GiB);
  EXPECT_EQ(after.hbm_bandwidth, before.hbm_bandwidth);
  EXPECT_EQ(after.cuda_context, before.cuda_context);
  gpu.spec.cuda_context = 700_MiB;
  ASSERT_TRUE(catalog.apply(gpu).ok());
  EXPECT_EQ(after.cuda_context, 700_MiB);
  gpu.spec.cuda_context.reset();
  ASSERT_TRUE(catalog.apply(gpu).ok());
  EXPECT_EQ(after.cuda_context, 700_MiB) << "what a resource does not set stays";
  EXPECT_EQ(catalog.find("NVIDIA-A100-SXM4-80GB"), &after);
  EXPECT_EQ(catalog.models().size(), GpuCatalog::built_in().models().size());
}

TEST(GpuCatalog, AResourceTakesALabelFromTheModelThatHadIt) {
  GpuCatalog catalog = GpuCatalog::built_in();
  crds::GpuModel gpu = resource("a100-pcie");
  gpu.spec.memory = 80_GiB;
  gpu.spec.product_labels = {"NVIDIA-A100-80GB-PCIe"};
  ASSERT_TRUE(catalog.apply(gpu).ok());
  EXPECT_EQ(name_for(catalog, "NVIDIA-A100-80GB-PCIe"), "a100-pcie");
  EXPECT_EQ(name_for(catalog, "NVIDIA-A100-SXM4-80GB"), "A100-80GB");
}

TEST(GpuCatalog, ANewModelNeedsItsMemory) {
  GpuCatalog catalog = GpuCatalog::built_in();
  crds::GpuModel gpu = resource("x100");
  const Result<void> refused = catalog.apply(gpu);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  EXPECT_NE(refused.error().message.find("spec.memory"), std::string::npos);

  gpu.spec.memory = 160_GiB;
  ASSERT_TRUE(catalog.apply(gpu).ok());
  const GpuModel* model = catalog.find("X100");
  ASSERT_NE(model, nullptr);
  EXPECT_GT(model->hbm_bandwidth.count, 0);
  EXPECT_DOUBLE_EQ(model->relative_cost, 2.0);
}

TEST(GpuCatalog, RefusesWhatCannotBe) {
  GpuCatalog catalog = GpuCatalog::built_in();
  crds::GpuModel zero_memory = resource("a100-80gb");
  zero_memory.spec.memory = Bytes{0};
  crds::GpuModel negative_bandwidth = resource("a100-80gb");
  negative_bandwidth.spec.hbm_bandwidth = Bytes{-1};
  crds::GpuModel free_of_charge = resource("a100-80gb");
  free_of_charge.spec.cost_per_hour = 0;
  crds::GpuModel no_number = resource("a100-80gb");
  no_number.spec.cost_per_hour = std::nan("");
  crds::GpuModel shared = resource("a100-80gb");
  shared.spec.product_labels = {"NVIDIA-A100-SXM4-80GB-SHARED"};
  for (const crds::GpuModel& gpu :
       {zero_memory, negative_bandwidth, free_of_charge, no_number, shared, resource("")}) {
    const Result<void> refused = catalog.apply(gpu);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
  }
  EXPECT_EQ(catalog.find("a100-80gb")->reported_memory(), 80_GiB);
}

TEST(GpuCatalog, PricesKeepTheirRatiosAndTheScaleOfTheRest) {
  GpuCatalog catalog = GpuCatalog::built_in();
  crds::GpuModel a100 = resource("a100-80gb");
  a100.spec.cost_per_hour = 30;  // any currency
  ASSERT_TRUE(catalog.apply(a100).ok());
  // A single price changes no ratio.
  EXPECT_DOUBLE_EQ(catalog.find("a100-80gb")->relative_cost, 1.0);

  crds::GpuModel h100 = resource("h100-80gb");
  h100.spec.cost_per_hour = 45;
  ASSERT_TRUE(catalog.apply(h100).ok());
  EXPECT_DOUBLE_EQ(catalog.find("h100-80gb")->relative_cost / catalog.find("a100-80gb")->relative_cost, 1.5);
  const double unpriced = catalog.find("v100-32gb")->relative_cost;
  EXPECT_LT(unpriced, catalog.find("a100-80gb")->relative_cost);

  // The same prices in another order, and applied twice, give the same result.
  GpuCatalog other = GpuCatalog::built_in();
  for (const crds::GpuModel& gpu : {h100, a100, h100}) {
    ASSERT_TRUE(other.apply(gpu).ok());
  }
  EXPECT_DOUBLE_EQ(other.find("h100-80gb")->relative_cost, catalog.find("h100-80gb")->relative_cost);
}

TEST(GpuCatalog, ReadsAFileOfDocumentsAndLists) {
  GpuCatalog catalog = GpuCatalog::built_in();
  const Result<void> applied = catalog.apply_file(R"(
apiVersion: plimsoll.dev/v1alpha1
kind: GPUModel
metadata: {name: a100-80gb}
spec: {memory: 79Gi}
---
- apiVersion: plimsoll.dev/v1alpha1
  kind: GPUModel
  metadata: {name: x100}
  spec: {memory: 200Gi, productLabels: [NVIDIA-X100]}
)");
  ASSERT_TRUE(applied.ok()) << to_string(applied.error());
  EXPECT_EQ(catalog.find("NVIDIA-A100-SXM4-80GB")->reported_memory(), 79_GiB);
  EXPECT_EQ(name_for(catalog, "NVIDIA-X100"), "x100");
}

TEST(GpuCatalog, AFileThatIsWrongSomewhereChangesNothing) {
  GpuCatalog catalog = GpuCatalog::built_in();
  const Result<void> refused = catalog.apply_file(R"(
- {apiVersion: plimsoll.dev/v1alpha1, kind: GPUModel, metadata: {name: a100-80gb}, spec: {memory: 79Gi}}
- {apiVersion: plimsoll.dev/v1alpha1, kind: GPUModel, metadata: {name: x100}, spec: {}}
)");
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("entry 2"), std::string::npos) << refused.error().message;
  EXPECT_EQ(catalog.find("a100-80gb")->reported_memory(), 80_GiB);
  for (const char* text : {"- 1", "[[[", "kind: Pod\nmetadata: {name: x}", "\"text\""}) {
    EXPECT_FALSE(catalog.apply_file(text).ok()) << text;
  }
}

}  // namespace
}  // namespace plimsoll::estimator
