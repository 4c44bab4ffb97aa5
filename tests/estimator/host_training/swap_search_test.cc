#include "estimator/host_training/swap_search.h"

#include <gmock/gmock.h>

#include <cstdio>

#include "estimator/host_training/swap_machine.h"
#include "estimator/layer_costs/layer_profile.h"
#include "tests/estimator/llama_job.h"
#include "tests/estimator/provisioner_fixture.h"
#include "tests/estimator/transformer_sizes.h"

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

// The rates of the host are those that jobs have measured on such nodes.
TEST_F(SwapSearchTest, APlanIsForTheRatesThatWereMeasured) {
  const Result<SwapFound> by_default = search_swap_plan(search_);
  search_.job.learned.host_update_bandwidth = 130_GiB;
  search_.usable = 12_GiB;
  const Result<SwapFound> fast = search_swap_plan(search_);
  search_.job.learned.host_update_bandwidth = 2_GiB;
  const Result<SwapFound> slow = search_swap_plan(search_);
  ASSERT_TRUE(by_default.ok() && fast.ok() && slow.ok());
  EXPECT_LT(fast->training.planned.seconds * 2, slow->training.planned.seconds);
  search_.job.learned.host_bandwidth = 2_GiB;
  const Result<SwapFound> slow_link = search_swap_plan(search_);
  ASSERT_TRUE(slow_link.ok());
  EXPECT_GT(slow_link->training.planned.bound_seconds, fast->training.planned.bound_seconds);
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

// MegaTrain (arXiv 2604.05091, github.com/DLYuanGod/MegaTrain at 919520f) trains these on one GPU through host memory, and says that it
// takes 12 bytes a parameter of the host; of 120 billion, on an H200 whose host has 1.5 TB. Its code keeps weights and gradients in
// bfloat16, and DeepSpeedCPUAdam's two states in fp32.
TEST(SwapFeasibility, IsThatOfMegaTrain) {
  struct Published {
    const char* name;
    testing::TransformerSizes sizes;
    std::int64_t samples, tokens;
    const char* gpu;
    Bytes host;
  };
  constexpr Published kPublished[] = {
      {"Qwen2.5-7B", {28, 3584, 18'944, 28, 4, 128, 152'064}, 8, 1536, "H100-80GB", Bytes{120'000'000'000}},
      // All its layers with full attention, as large as its linear ones.
      {"Qwen3.5-27B", {64, 5120, 17'408, 40, 8, 128, 151'936}, 2, 1536, "H100-80GB", Bytes{400'000'000'000}},
      {"120B, by its calc_resource.py",
       {96, 10'240, 27'306, 80, 80, 128, 32'000},
       1,
       1024,
       "H200",
       Bytes{1'500'000'000'000}},
  };
  for (const Published& each : kPublished) {
    SCOPED_TRACE(each.name);
    const crds::ModelSpec model = testing::model_of(each.sizes, each.tokens);
    crds::TrainingSpec training;
    training.precision = crds::Precision::kBF16;
    training.optimizer = crds::Optimizer::kAdamW;
    const GpuModel gpu = available(each.gpu, 1).model;
    LayerProfileRequest wanted{.job = {}, .microbatches = {1}};
    wanted.job.model = &model;
    wanted.job.training = &training;
    wanted.job.gpu = &gpu;
    Result<SwapProfile> profile = layer_profile(wanted);
    ASSERT_TRUE(profile.ok()) << to_string(profile.error());
    Bytes parameters{};
    for (std::size_t i = 0; i < profile->layers(); ++i) {
      profile->state[i] = profile->weights[i] * 4;  // PyTorch's own has them in the parameters' type
      parameters += profile->weights[i];
    }
    SwapRequest request;
    request.profile = &*profile;
    request.samples = each.samples;
    request.capacity = swap_capacity(wanted.job, Bytes{gpu.memory.count / 10 * 9});
    request.host_memory = each.host;
    request.machine = swap_machine_of(gpu);
    request.machine.principles.stay = false;  // MegaTrain keeps no layer on the GPU
    const Result<PlannedSwap> planned = plan_swap(request);
    ASSERT_TRUE(planned.ok()) << to_string(planned.error());
    const SwapHostMemory& host = planned->host;
    const double of_parameter = 2 *
                                static_cast<double>((host.model + host.gradients + host.optimizer).count) /
                                static_cast<double>(parameters.count);
    std::printf("%-30s %6.1fe9 parameters: %5.2f bytes of each on the host, %s with stashes, of %s\n",
                each.name, static_cast<double>(parameters.count) / 2e9, of_parameter,
                to_string(host.total()).c_str(), to_string(each.host).c_str());
    EXPECT_NEAR(of_parameter, 12, 1.2);
    request.host_memory = Bytes{each.host.count / 5 * 3};
    EXPECT_FALSE(plan_swap(request).ok()) << "with three fifths of that host";
  }
}

}  // namespace
}  // namespace plimsoll::estimator
