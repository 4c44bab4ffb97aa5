#include "estimator/host_training/swap_search.h"

#include <gmock/gmock.h>

#include "tests/estimator/llama_job.h"
#include "tests/estimator/provisioner_fixture.h"

namespace plimsoll::estimator {
namespace {

using plimsoll::testing::available;
using ::testing::HasSubstr;
using testing::kLlama8B;
using testing::llama_job;

// Llama 3 8B of 2,048 tokens on four A100-80GB.
class SwapSearchTest : public ::testing::Test {
 protected:
  SwapSearchTest() {
    job_.spec.training.parallelism.strategy = crds::ParallelStrategy::kAuto;
    job_.spec.model.transformer->sequence_length = 2048;
    search_ = {.job = {}, .samples = 16, .gpus = 4, .usable = 76_GiB, .node_memory = 1024_GiB};
    search_.job.model = &job_.spec.model;
    search_.job.training = &job_.spec.training;
    search_.job.gpu = &gpu_;
  }

  std::string error() const {
    const Result<SwapFound> found = search_swap_plan(search_);
    return found ? "found" : found.error().message;
  }

  crds::TrainingJob job_ = llama_job(kLlama8B, 4, 1, 8);
  GpuModel gpu_ = available("A100-80GB", 1).model;
  SwapSearch search_;
};

TEST_F(SwapSearchTest, APlanIsWithinTheGpusAndTheHost) {
  const Result<SwapFound> found = search_swap_plan(search_);
  ASSERT_TRUE(found.ok()) << to_string(found.error());
  const SwapTraining& training = found->training;
  EXPECT_TRUE(check_plan(training.planned.plan, training.layers).ok());
  EXPECT_LE(training.planned.device_memory, training.capacity);
  EXPECT_LE(found->estimate.peak.upper_bound, search_.usable);
  EXPECT_EQ(found->estimate.breakdown.total(), found->estimate.peak.upper_bound);
  EXPECT_GT(training.host_memory, training.planned.host.total());
  EXPECT_GE(training.planned.seconds, training.resident_seconds);
  EXPECT_EQ(training.shared_memory, Bytes{}) << "16 samples of 2,048 tokens are less than 64 MiB";
}

// The search ends after a number of steps, so that more memory may give a plan that is slightly slower.
TEST_F(SwapSearchTest, LessMemoryIsNoFaster) {
  const Result<SwapFound> much = search_swap_plan(search_);
  search_.usable = 12_GiB;
  const Result<SwapFound> little = search_swap_plan(search_);
  ASSERT_TRUE(much.ok() && little.ok());
  EXPECT_GE(little->training.planned.seconds, much->training.planned.seconds * 0.99);
  EXPECT_LT(little->estimate.peak.upper_bound, 12_GiB);
}

TEST_F(SwapSearchTest, SaysWhatIsTooSmall) {
  search_.usable = 2_GiB;
  EXPECT_THAT(error(), HasSubstr("no plan fits: layer "));
  search_.usable = 76_GiB;
  search_.node_memory = 30_GiB;
  EXPECT_THAT(error(), HasSubstr("of host memory, and a node has 30.0 GiB"));
}

TEST_F(SwapSearchTest, LargeBatchesOfTheLoaderHaveSharedMemory) {
  search_.samples = 4096;
  const Result<SwapFound> found = search_swap_plan(search_);
  ASSERT_TRUE(found.ok()) << to_string(found.error());
  EXPECT_EQ(found->training.shared_memory, 4 * 4096 * 2048 * 8_B) << "four batches of token numbers";
}

TEST_F(SwapSearchTest, WhatIsNoBatchIsRefused) {
  search_.samples = 0;
  EXPECT_THAT(error(), HasSubstr("a swap plan needs a batch of 1 to 16777216 samples"));
}

TEST_F(SwapSearchTest, ABudgetEndsIt) {
  Budget budget({.work = 1000});
  search_.job.budget = &budget;
  const Result<SwapFound> found = budget.run([&] { return search_swap_plan(search_); });
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kTooLarge);
}

}  // namespace
}  // namespace plimsoll::estimator
