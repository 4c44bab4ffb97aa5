#include "cli/throughput_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "estimator/catalog/gpu_catalog.h"
#include "tests/estimator/llama_job.h"

namespace plimsoll::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ThroughputReport : public ::testing::Test {
 protected:
  std::optional<estimator::Throughput> on(const char* card) {
    AnswerBudget budget(kDefaultTimeout);
    return throughput_of({.model = &job_.spec.model,
                          .training = &job_.spec.training,
                          .gpu = card == nullptr ? nullptr : catalog_.find(card),
                          .trainers = 8},
                         {}, budget);
  }

  estimator::GpuCatalog catalog_ = estimator::GpuCatalog::built_in();
  crds::TrainingJob job_ = estimator::testing::llama_job(estimator::testing::kLlama8B, 1);
};

TEST_F(ThroughputReport, ItsPartsSumToTheIteration) {
  const std::optional<estimator::Throughput> throughput = on("H100-80GB");
  ASSERT_TRUE(throughput);
  const Json json = throughput_json(*throughput);
  double sum = 0;
  for (const Json& part : json["parts"]) {
    sum += std::stod(part["seconds"].asString());
  }
  EXPECT_NEAR(sum, std::stod(json["iterationSeconds"].asString()), 0.02 * sum);
}

TEST_F(ThroughputReport, SaysThePartsWhereTheyAreAskedFor) {
  const std::optional<estimator::Throughput> throughput = on("H100-80GB");
  ASSERT_TRUE(throughput);
  EXPECT_THAT(throughput_text(*throughput, false), Not(HasSubstr("matrix products")));
  EXPECT_THAT(throughput_text(*throughput, true), HasSubstr("    matrix products "));
  EXPECT_THAT(throughput_text(*throughput, true), HasSubstr("within a factor of 1.30"));
}

TEST_F(ThroughputReport, IsAbsentWhereTheSpeedIsNotKnown) {
  EXPECT_FALSE(on(nullptr));
  EXPECT_FALSE(on("A40"));
}

}  // namespace
}  // namespace plimsoll::cli
