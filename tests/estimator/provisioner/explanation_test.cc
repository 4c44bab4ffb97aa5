#include "estimator/provisioner/explanation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/estimator/llama_job.h"

namespace plimsoll::estimator {
namespace {

using ::testing::HasSubstr;

AvailableGpu a100() {
  AvailableGpu gpu;
  gpu.model.name = "A100-80GB";
  gpu.model.memory = 80_GiB;
  gpu.total_gpus = 64;
  return gpu;
}

TEST(Explanation, ComparesTheChoiceWithTheRequest) {
  AvailableGpu gpu = a100();
  const Candidate candidate{.gpu = &gpu, .least = 8};
  crds::TrainingJobSpec spec;
  spec.training.batch_size_per_trainer = 512;
  crds::Trainers requested;
  crds::BatchSplit batch;
  const auto text = [&](std::int64_t trainers) {
    return explain_choice(spec, requested,
                          {.candidate = &candidate, .trainers = trainers, .batch = batch, .peak = 70_GiB});
  };
  const std::string peak = ". Peak at most 70.0 GiB of 80.0 GiB a GPU";
  EXPECT_EQ(text(16), "16 x A100-80GB GPUs are the fewest that hold the job" + peak);
  requested.replicas = 24;
  requested.replicas_given = true;
  EXPECT_EQ(
      text(16),
      "16 x A100-80GB GPUs are the fewest that hold the job; 24 requested, 8 saved; the global batch is 8192 "
      "samples instead of 12288" +
          peak);
  EXPECT_EQ(text(24), "24 x A100-80GB GPUs, as requested" + peak);
  requested.gpu_model = "V100-32GB";
  EXPECT_EQ(text(32),
            "32 x A100-80GB GPUs are the fewest that hold the job; 24 x V100-32GB requested, too few to "
            "hold it; the global batch is 16384 samples instead of 12288" +
                peak);
  requested.gpu_model = {};
  requested.replicas = 4;
  EXPECT_THAT(text(8), HasSubstr("4 requested, not a whole number of nodes and of model replicas"));
  spec.provisioning.min_trainers = 8;
  EXPECT_EQ(text(8),
            "8 x A100-80GB GPUs are the fewest that hold the job; 4 requested, below minTrainers in whole "
            "nodes; the global batch is 4096 samples instead of 2048" +
                peak);
  spec.provisioning.objective = crds::Objective::kLowestCost;
  gpu.addable_gpus = 56;
  requested = {};
  EXPECT_EQ(text(16),
            "16 x A100-80GB GPUs are the cheapest choice that holds the job; 8 of them on nodes that "
            "autoscaling has yet to add" +
                peak);
  gpu.addable_gpus = 0;
  spec.training.batch_size_per_trainer = 0;
  spec.training.global_batch_size = 4096;
  batch = {.batch_size = 256, .accumulation = 4};
  requested.replicas = 32;
  requested.replicas_given = true;
  EXPECT_EQ(
      text(16),
      "16 x A100-80GB GPUs are the cheapest choice that holds the job; 32 requested, 16 saved; each replica "
      "takes 256 of the 4096 samples, in 4 parts" +
          peak);
}

TEST(Explanation, NamesTheLimitThatDecidesTheNumber) {
  const AvailableGpu gpu = a100();
  Candidate candidate{.gpu = &gpu, .least = 8, .most = 32};
  crds::TrainingJobSpec spec;
  crds::Trainers requested;
  requested.replicas = 64;
  requested.replicas_given = true;
  Choice choice{.candidate = &candidate, .trainers = 32, .batch = {}, .peak = 70_GiB};
  EXPECT_THAT(explain_choice(spec, requested, choice),
              HasSubstr("32 x A100-80GB GPUs are as many as provisioning.maxTrainers allows; 64 requested"));
  requested.replicas = 16;
  choice.trainers = 24;
  choice.by_throughput = true;
  EXPECT_THAT(
      explain_choice(spec, requested, choice),
      HasSubstr(
          "24 x A100-80GB GPUs are the fewest that reach provisioning.minThroughput; 16 requested, too slow"));
  choice.by_throughput = false;
  candidate.least = 24;
  candidate.failed = 16;
  EXPECT_THAT(explain_choice(spec, requested, choice), HasSubstr("16 requested, which ran out of memory"));
}

TEST(Explanation, SaysWhichLimitLeavesNoNumber) {
  const AvailableGpu gpu = a100();
  Candidate candidate{.gpu = &gpu, .per_node = 8, .capacity = 64};
  crds::ProvisioningSpec provisioning;
  provisioning.min_trainers = 9;
  provisioning.max_trainers = 15;
  EXPECT_EQ(explain_no_count(provisioning, candidate),
            "provisioning.maxTrainers 15 leaves no count from minTrainers 9 up in whole nodes of 8");
  candidate.failed = 8;
  EXPECT_EQ(
      explain_no_count(provisioning, candidate),
      "out of memory on 8 trainers before, and provisioning.maxTrainers 15 leaves no larger count in whole "
      "nodes of 8");
  EXPECT_EQ(explain_capacity(candidate, 72), "needs at least 72 GPUs, and the cluster has 64 in nodes of 8");
  EXPECT_EQ(usable_text(70_GiB, {}), "70.0 GiB");
  EXPECT_EQ(usable_text(70_GiB, 2_GiB),
            "70.0 GiB (2.00 GiB less, which attempts needed beyond their estimate)");
}

TEST(Explanation, AnExcessNamesTheLargestTensorAndWhetherMoreTrainersHelp) {
  crds::TrainingJobSpec spec = testing::llama_job(testing::kLlama8B, 1).spec;
  spec.training.parallelism.strategy = crds::ParallelStrategy::kDDP;
  Estimate estimate;
  EXPECT_EQ(explain_excess(spec, estimate), "") << "as of the AMP paper's formula";
  estimate.largest_live = {{"layers.0.mlp.up", "activation", 3_GiB}, {"head.cast", "temporary", 1_GiB}};
  EXPECT_EQ(
      explain_excess(spec, estimate),
      "the largest tensor is layers.0.mlp.up (activation) with 3.00 GiB; more trainers would not take less each, "
      "because each holds the model and a batch of its own");
  spec.training.parallelism.strategy = crds::ParallelStrategy::kFSDP2;
  std::swap(estimate.largest_live[0], estimate.largest_live[1]);
  EXPECT_EQ(explain_excess(spec, estimate),
            "the largest tensor is head.cast (temporary) with 1.00 GiB, of the logits of all tokens, which "
            "training.lossChunks takes in parts");
  spec.training.loss_chunks = 8;
  EXPECT_EQ(explain_excess(spec, estimate), "the largest tensor is head.cast (temporary) with 1.00 GiB");
  spec.training.loss_chunks = 1;
  spec.model.transformer->config = R"({"model_type": "phi"})";
  EXPECT_EQ(explain_excess(spec, estimate), "the largest tensor is head.cast (temporary) with 1.00 GiB")
      << "the output layer has a bias, with which the loss cannot be taken in parts";
}

// That the job keeps its trainers was cut off where the reason was long.
TEST(Explanation, WarningsAreCutAtWholeCharactersBeforeWhatHappens) {
  const std::string kept = "; the job keeps its 1 trainer";
  EXPECT_EQ(unchanged_warning("short", {}), "short" + kept);
  std::string text(222, 'a');
  for (int i = 0; i < 10; ++i) {
    text += "\u00e9";
  }
  EXPECT_EQ(unchanged_warning(text, {}), std::string(222, 'a') + "\u00e9..." + kept);
  EXPECT_EQ(unchanged_warning(text, {}).size(), kWarningLimit);
}

TEST(Explanation, BudgetErrorsAreEventReasons) {
  EXPECT_STREQ(event_reason_of(Error(ErrorCode::kTimeout, "")), "DeadlineExceeded");
  EXPECT_STREQ(event_reason_of(Error(ErrorCode::kCancelled, "")), "Cancelled");
  EXPECT_STREQ(event_reason_of(Error(ErrorCode::kTooLarge, "")), "TooLarge");
}

}  // namespace
}  // namespace plimsoll::estimator
