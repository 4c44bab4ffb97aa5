#include "estimator/fixed_costs/table.h"

#include <gtest/gtest.h>

#include <string>

#include "estimator/catalog/gpu_catalog.h"
#include "estimator/trace/trace.h"
#include "tests/estimator/data_files.h"

namespace plimsoll::estimator {
namespace {

Platform platform(const GpuModel& gpu, const char* torch, TorchVersion version) {
  return {.gpu = gpu.name,
          .family = gpu.family,
          .memory = gpu.memory,
          .cuda = cuda_version_of(torch),
          .torch = version};
}

TEST(FixedCostTable, EveryRowHasASourceAndTheLastOneHoldsForAll) {
  for (const auto rows : fixed_cost_tables()) {
    for (const FixedCostRow& row : rows) {
      EXPECT_GT(std::string(row.source).size(), 20U);
      EXPECT_TRUE(row.bytes.count > 0 || std::string(row.source).starts_with("shares"));
    }
    EXPECT_TRUE(rows.back().gpu.empty() && rows.back().family.empty());
    EXPECT_EQ(rows.back().cuda + rows.back().torch + rows.back().least_memory.count, 0);
  }
}

// An unknown GPU or unknown software gets the largest values.
TEST(FixedCostTable, WhatIsNotKnownIsBoundedByWhatIs) {
  const Platform nothing{.gpu = {}, .family = {}, .memory = {}};
  const GpuCatalog catalog = GpuCatalog::built_in();
  for (const GpuModel& gpu : catalog.models()) {
    for (const char* torch : {"", "1.12.1+cu113", "2.6.0+cu124"}) {
      for (const TorchVersion version : {0, 112, 206}) {
        const Platform known = platform(gpu, torch, version);
        const Platform unknown = platform(gpu, "", 0);
        EXPECT_LE(context_row(known).bytes, context_row(unknown).bytes) << gpu.name << torch;
        EXPECT_LE(context_row(unknown).bytes, context_row(nothing).bytes) << gpu.name;
        EXPECT_LE(cublas_row(known).bytes, cublas_row(nothing).bytes) << gpu.name;
        EXPECT_LE(cublas_lt_row(known).bytes, cublas_lt_row(nothing).bytes) << gpu.name;
      }
    }
  }
}

// Published figures, with their sources in fixed_costs/table.cc.
TEST(FixedCostTable, ContextsThatWereSeenAreWithinTheirBounds) {
  for (const testing::CsvRow& row : testing::csv_rows("fixed_costs/contexts.csv")) {
    const Platform on{.gpu = row.text("gpu"),
                      .family = row.text("family"),
                      .memory = 24_GiB,
                      .cuda = cuda_version_of(row.text("torch")),
                      .torch = static_cast<TorchVersion>(row.integer("torchVersion"))};
    EXPECT_GE(context_row(on).bytes, Bytes::from_mib(row.integer("mib")))
        << row.text("gpu") << " " << row.text("torch");
  }
}

TEST(FixedCostTable, PyTorchsVersionTellsCudas) {
  EXPECT_EQ(cuda_version_of("2.6.0+cu124"), 1204);
  EXPECT_EQ(cuda_version_of("2.15.0+cu130"), 1300);
  EXPECT_EQ(cuda_version_of("1.1.0+cu92"), 902);
  for (const char* untold : {"", "1.13.1", "2.1.0+cpu", "2.4.0+rocm6.1", "2.6.0a0+ecf3bae40a.nv25.01",
                             "2.0.0+cu", "2.0.0+cu1", "2.0.0+cu99999999999", "2.0.0+cu-11", "2.0.0+cuda"}) {
    EXPECT_EQ(cuda_version_of(untold), 0) << untold;
  }
}

// CUDA loads kernels lazily from 11.7 on, and PyTorch enables it from 1.13 on; both are needed.
TEST(FixedCostTable, LazyLoadingNeedsBothVersions) {
  Platform on{.gpu = "H100-80GB", .family = "hopper", .memory = 80_GiB, .cuda = 1107, .torch = 113};
  const Bytes lazy = context_row(on).bytes;
  on.cuda = 1106;
  const Bytes old_cuda = context_row(on).bytes;
  on.cuda = 1300;
  on.torch = 112;
  EXPECT_LT(lazy, old_cuda);
  EXPECT_EQ(context_row(on).bytes, old_cuda);
}

TEST(FixedCostTable, TheFirstRowThatMatchesIsUsed) {
  const Platform on{.gpu = "A100-80GB", .family = "ampere", .memory = 80_GiB, .cuda = 1208, .torch = 206};
  EXPECT_EQ(context_row(on).gpu, "A100") << "the row of the GPU is before the row of its family";
  const Platform other{.gpu = "A10-24GB", .family = "ampere", .memory = 24_GiB, .cuda = 1208, .torch = 206};
  EXPECT_EQ(context_row(other).family, "ampere");
}

// pytorch#120925: 4 MiB on GPUs of 24 GiB, of which CUDA gives somewhat less.
TEST(FixedCostTable, TheWorkspaceOfCublasLtDependsOnTheMemory) {
  Platform on{.gpu = "A10-24GB", .family = "ampere", .memory = 21_GiB};
  EXPECT_EQ(cublas_lt_row(on).bytes, 4_MiB);
  on.memory = 21_GiB - 1_B;
  EXPECT_EQ(cublas_lt_row(on).bytes, 1_MiB);
}

// Measured on an H100 with torch 2.11; a version that is not known gets the larger figure.
TEST(FixedCostTable, LaterReleasesShareTheWorkspaceOfCublas) {
  Platform on{.gpu = "H100-80GB", .family = "hopper", .memory = 80_GiB, .torch = 211};
  EXPECT_EQ(cublas_lt_row(on).bytes, Bytes{});
  on.torch = 210;
  EXPECT_EQ(cublas_lt_row(on).bytes, 32_MiB);
  on.torch = 0;
  EXPECT_EQ(cublas_lt_row(on).bytes, 32_MiB);
}

}  // namespace
}  // namespace plimsoll::estimator
