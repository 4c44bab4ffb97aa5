#include "estimator/catalog/capabilities.h"

#include <gtest/gtest.h>

#include "estimator/catalog/gpu_catalog.h"

namespace plimsoll::estimator {
namespace {

TEST(ComputeCapability, IsTwoNumbers) {
  EXPECT_EQ(parse_compute_capability("8.6"), (ComputeCapability{8, 6}));
  EXPECT_EQ(to_string(ComputeCapability{12, 1}), "12.1");
  EXPECT_LT((ComputeCapability{9, 0}), (ComputeCapability{10, 0}));
  for (const char* wrong : {"", ".", "8", "8.", ".6", "8.6.1", "-8.6", "8.-6", "eight", "99999999999.0"}) {
    EXPECT_EQ(parse_compute_capability(wrong), std::nullopt) << wrong;
  }
}

TEST(Capabilities, OfTheCatalogue) {
  const struct {
    const char* gpu;
    bool fp16, bf16, tf32, fp8, flash2, flash3;
    std::int32_t oldest_cuda, newest_cuda;
  } rows[] = {
      {"K80", false, false, false, false, false, false, 0, 1108},
      {"P100-16GB", true, false, false, false, false, false, 800, 1209},
      {"V100-32GB", true, false, false, false, false, false, 900, 1209},
      {"T4", true, false, false, false, false, false, 1000, 0},
      {"A100-80GB", true, true, true, false, true, false, 1100, 0},
      {"A10", true, true, true, false, true, false, 1101, 0},
      {"L4", true, true, true, true, true, false, 1108, 0},
      {"H100-80GB", true, true, true, true, true, true, 1108, 0},
      {"B200", true, true, true, true, true, false, 1208, 0},
      {"GB300", true, true, true, true, true, false, 1209, 0},
  };
  const GpuCatalog catalog = GpuCatalog::built_in();
  for (const auto& row : rows) {
    const Capabilities can = capabilities_of(*catalog.find(row.gpu)->compute_capability);
    EXPECT_EQ(can.fp16, row.fp16) << row.gpu;
    EXPECT_EQ(can.bf16, row.bf16) << row.gpu;
    EXPECT_EQ(can.tf32, row.tf32) << row.gpu;
    EXPECT_EQ(can.fp8, row.fp8) << row.gpu;
    EXPECT_EQ(can.flash_attention_2, row.flash2) << row.gpu;
    EXPECT_EQ(can.flash_attention_3, row.flash3) << row.gpu;
    EXPECT_EQ(can.oldest_cuda, row.oldest_cuda) << row.gpu;
    EXPECT_EQ(can.newest_cuda, row.newest_cuda) << row.gpu;
  }
  for (const GpuModel& gpu : catalog.models()) {
    EXPECT_TRUE(gpu.compute_capability) << gpu.name;
  }
}

TEST(Capabilities, AsAGpuModelDescribesThem) {
  const crds::GpuCapabilities volta = described({7, 0});
  EXPECT_EQ(volta.compute_capability, "7.0");
  EXPECT_EQ(volta.native_precisions, std::vector<std::string>{"FP16"});
  EXPECT_TRUE(volta.flash_attention.empty());
  EXPECT_EQ(volta.oldest_cuda, "9.0");
  EXPECT_EQ(volta.newest_cuda, "12.9");
  const crds::GpuCapabilities hopper = described({9, 0});
  EXPECT_EQ(hopper.native_precisions, (std::vector<std::string>{"FP16", "BF16", "TF32", "FP8"}));
  EXPECT_EQ(hopper.flash_attention, (std::vector<std::string>{"2", "3"}));
  EXPECT_EQ(hopper.newest_cuda, "");
}

TEST(TorchBuilds, HaveCodeForTheSameMajorVersion) {
  const struct {
    TorchBuild build;
    ComputeCapability card;
    std::optional<bool> runs;
  } rows[] = {
      {{207, 1108}, {3, 7}, true},  // the last build with a K80's code
      {{207, 1206}, {3, 7}, false},
      {{215, 1300}, {7, 0}, false},  // CUDA 13 dropped Volta
      {{215, 1206}, {7, 0}, true},
      {{211, 1208}, {7, 0}, false},  // PyTorch dropped it before CUDA 12 did
      {{210, 1208}, {7, 0}, true},
      {{206, 1204}, {10, 0}, false},
      {{207, 1208}, {10, 0}, true},
      {{207, 1208}, {10, 3}, true},  // code of 10.0
      {{215, 1206}, {6, 1}, true},   // code of 6.0
      {{113, 1107}, {8, 9}, true},   // code of 8.6
      {{113, 1107}, {9, 0}, false},
      {{207, 1208}, {12, 1}, true},
      {{208, 1209}, {13, 0}, true},  // PTX
      {{208, 1208}, {13, 0}, false},
      {{215, 0}, {7, 0}, true},  // one of its builds
      {{215, 0}, {3, 7}, false},
      {{999, 1300}, {7, 0}, std::nullopt},  // not in the table
      {{215, 1100}, {7, 0}, std::nullopt},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(build_has_code_for(row.build, row.card), row.runs)
        << row.build.torch << " with CUDA " << row.build.cuda << " on " << to_string(row.card);
  }
}

TEST(DriverVersion, IsUpToThreeNumbers) {
  EXPECT_EQ(parse_driver_version("550"), (DriverVersion{{550, 0, 0}}));
  EXPECT_EQ(parse_driver_version("535.104.12"), (DriverVersion{{535, 104, 12}}));
  EXPECT_LT(*parse_driver_version("450.80.02"), *parse_driver_version("450.119.03"));
  EXPECT_EQ(to_string(*parse_driver_version("450.80.02")), "450.80.02");
  for (const char* wrong : {"", ".", "535.", "535.104.12.1", "R535", "535.-1", "99999999999"}) {
    EXPECT_EQ(parse_driver_version(wrong), std::nullopt) << wrong;
  }
}

TEST(DriverVersion, ThatACudaVersionNeeds) {
  EXPECT_EQ(oldest_driver_for(1108), (DriverVersion{{450, 80, 2}}));
  EXPECT_EQ(oldest_driver_for(1204), (DriverVersion{{525, 60, 13}}));
  EXPECT_EQ(oldest_driver_for(1304), (DriverVersion{{580, 65, 6}}));
  EXPECT_EQ(oldest_driver_for(0), std::nullopt);
  EXPECT_EQ(oldest_driver_for(2000), std::nullopt);
}

}  // namespace
}  // namespace plimsoll::estimator
