// Published peaks of fine-tuning on one GPU (published_fine_tuning.yaml): what tensors take, row by row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "estimator/estimate/estimate.h"
#include "tests/estimator/data_files.h"

namespace plimsoll::estimator {
namespace {

// Percent. docs/estimation.md, "Published fine-tuning", says what is known of the rows of NF4.
constexpr double kWithin = 5.5;
constexpr double kQuantisedWithin = 9.5;
constexpr double kMedianWithin = 3.7;

TEST(PublishedFineTuning, EachPeakIsWithinItsLimitAndUnderTheBound) {
  const GpuCatalog catalog = GpuCatalog::built_in();
  std::vector<double> errors;
  for (const testing::MeasuredRun& run : testing::measured_runs("estimate/published_fine_tuning.yaml")) {
    EstimateRequest request{.model = &run.spec.model, .training = &run.spec.training};
    request.gpu = catalog.find("A100-80GB");
    const Result<Estimate> estimate = estimate_memory(request);
    ASSERT_TRUE(estimate.ok()) << run.name << ": " << to_string(estimate.error());
    const auto percent = [&](Bytes bytes) {
      return 100.0 * static_cast<double>(bytes.count - run.bytes) / static_cast<double>(run.bytes);
    };
    const double error = percent(estimate->peak.allocated);
    const double bound = percent(estimate->peak.upper_bound - estimate->breakdown.cuda_context);
    std::printf("%-32s measured %6.2f GB, tensors %+5.1f %%, upper bound %+5.1f %%\n", run.name.c_str(),
                static_cast<double>(run.bytes) / 1e9, error, bound);
    const bool quantised = run.spec.training.fine_tuning &&
                           run.spec.training.fine_tuning->quantization != crds::Quantization::kNone;
    EXPECT_LE(std::abs(error), quantised ? kQuantisedWithin : kWithin) << run.name;
    EXPECT_GE(bound, 0) << run.name;
    errors.push_back(std::abs(error));
  }
  std::sort(errors.begin(), errors.end());
  std::printf("median %.1f %%, worst %.1f %% of %zu\n", errors[errors.size() / 2], errors.back(),
              errors.size());
  EXPECT_LE(errors[errors.size() / 2], kMedianWithin);
}

}  // namespace
}  // namespace plimsoll::estimator
