// One rank of N on a real GPU (tests/accuracy/parallel_on_gpu.py): what tensors take, what the allocator reserves, and the
// upper bound, row by row.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "estimator/estimate/estimate.h"
#include "tests/estimator/data_files.h"
#include "tests/estimator/error_figures.h"

namespace plimsoll::estimator {
namespace {

using testing::median;
using testing::percent_error;

// Percent, by strategy. docs/estimation.md, "Parallel runs on an H100", says what is known of the rows that are further off.
struct Limits {
  double allocated = 0, median_allocated = 0;
  double reserved = 0, median_reserved = 0;
};
const std::map<crds::ParallelStrategy, Limits> kWithin = {
    {crds::ParallelStrategy::kDDP,
     {.allocated = 1.5, .median_allocated = 0.01, .reserved = 9.6, .median_reserved = 2.2}},
    {crds::ParallelStrategy::kFSDP,
     {.allocated = 2, .median_allocated = 0.06, .reserved = 8.1, .median_reserved = 2}},
    {crds::ParallelStrategy::kFSDP2,
     {.allocated = 3.2, .median_allocated = 1.25, .reserved = 8.5, .median_reserved = 0.8}},
    {crds::ParallelStrategy::kMegatron,
     {.allocated = 2.9, .median_allocated = 0.14, .reserved = 7.4, .median_reserved = 4.2}},
};

TEST(ParallelGpu, EachRankIsWithinItsLimitAndUnderTheBound) {
  const Json file = testing::measured_gpu_file("parallel_h100.json");
  const GpuCatalog catalog = GpuCatalog::built_in();
  const GpuModel* const gpu = catalog.find(file["gpu"].asString());
  ASSERT_NE(gpu, nullptr);
  std::string torch = file["torch"].asString();  // 2.11.0+cu130
  torch = torch.substr(0, torch.find('+'));
  std::map<crds::ParallelStrategy, std::vector<double>> allocated, reserved;
  for (Json row : file["rows"]) {
    row["training"]["torchVersion"] = torch.substr(0, torch.rfind('.'));
    const crds::TrainingJobSpec spec = testing::spec_of_row(row);
    const std::string name = row["case"].asString();
    EstimateRequest request{.model = &spec.model, .training = &spec.training};
    request.gpu = gpu;
    request.trainers = row["trainers"].asInt64();
    const Result<Estimate> estimate = estimate_memory(request);
    ASSERT_TRUE(estimate.ok()) << name << ": " << to_string(estimate.error());
    const double error = percent_error(estimate->peak.allocated, row["allocated"].asInt64());
    const double of_reserved = percent_error(estimate->peak.reserved, row["reserved"].asInt64());
    const crds::ParallelStrategy strategy = spec.training.parallelism.strategy;
    std::printf("%-20s %-8s N %2lld %-9s %-4s tensors %+6.2f %%, reserved %+6.2f %%\n", name.c_str(),
                crds::name_of(strategy), static_cast<long long>(request.trainers),
                crds::name_of(spec.training.precision), crds::name_of(spec.training.activation_checkpointing),
                error, of_reserved);
    EXPECT_LE(std::abs(error), kWithin.at(strategy).allocated) << write_json(row);
    EXPECT_LE(std::abs(of_reserved), kWithin.at(strategy).reserved) << write_json(row);
    // The runs have neither NCCL nor, in what is reserved, the context.
    const Breakdown& parts = estimate->breakdown;
    const Bytes bound = estimate->peak.upper_bound - parts.cuda_context - parts.communication;
    const double beyond = percent_error(bound, row["reserved"].asInt64());
    EXPECT_GE(beyond, strategy == crds::ParallelStrategy::kMegatron ? -1.3 : 0.0) << write_json(row);
    allocated[strategy].push_back(std::abs(error));
    reserved[strategy].push_back(std::abs(of_reserved));
  }
  for (const auto& [strategy, errors] : allocated) {
    std::printf("%-8s %zu runs: median %.2f %%, of what is reserved %.2f %%\n", crds::name_of(strategy),
                errors.size(), median(errors), median(reserved[strategy]));
    EXPECT_LE(median(errors), kWithin.at(strategy).median_allocated);
    EXPECT_LE(median(reserved[strategy]), kWithin.at(strategy).median_reserved);
  }
  EXPECT_EQ(allocated.size(), kWithin.size());
}

}  // namespace
}  // namespace plimsoll::estimator
