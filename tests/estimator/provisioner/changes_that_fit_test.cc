#include "estimator/provisioner/changes_that_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "tests/estimator/llama_job.h"
#include "tests/estimator/provisioner_fixture.h"

namespace plimsoll::estimator {
namespace {

using plimsoll::testing::available;
using plimsoll::testing::Cluster;
using plimsoll::testing::decode;
using plimsoll::testing::job_object;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kLlama70B;
using testing::kLlama8B;
using testing::llama_job;
using ::testing::Not;

constexpr std::int64_t kGiBOfRows = 2'097'152;  // x 128 in FP32

Provision with_changes(const crds::TrainingJob& job, const Cluster& cluster) {
  Budget budget;
  return provision({.job = &job, .gpus = &cluster, .budget = &budget, .suggest = true});
}

crds::TrainingJob replicated(const testing::LlamaSizes& sizes) {
  crds::TrainingJob job = llama_job(sizes, 4);
  job.spec.training.activation_checkpointing = crds::ActivationCheckpointing::kNone;
  job.spec.training.parallelism.strategy = crds::ParallelStrategy::kDDP;
  job.spec.provisioning.max_trainers = 64;
  return job;
}

constexpr const char* kOffload = "training.parallelism.offload: Optimizer and offloadPercent: ";

// Applies what a change says of the training, as a user would.
void apply(const std::string& change, crds::TrainingJob& job) {
  crds::TrainingJobSpec& spec = job.spec;
  const auto value = [&](const char* prefix) { return change.substr(std::string(prefix).size()); };
  if (change == "training.activationCheckpointing: Full") {
    spec.training.activation_checkpointing = crds::ActivationCheckpointing::kFull;
  } else if (change == "training.initialisation: CPU") {
    spec.training.initialisation = crds::Initialisation::kCPU;
  } else if (change.starts_with("training.lossChunks: ")) {
    spec.training.loss_chunks = std::stoll(value("training.lossChunks: "));
  } else if (change == "training.parallelism.strategy: FSDP2") {
    spec.training.parallelism.strategy = crds::ParallelStrategy::kFSDP2;
  } else if (change == "training.parallelism.offload: Parameters") {
    spec.training.parallelism.offload = crds::Offload::kParameters;
  } else if (change.starts_with(kOffload)) {
    spec.training.parallelism.offload = crds::Offload::kOptimizer;
    spec.training.parallelism.offload_percent = std::stoll(value(kOffload));
  } else if (change.starts_with("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")) {
    job.raw = plimsoll::testing::parse(
        R"({"spec": {"template": {"spec": {"containers": [{"name": "trainer", "env": [
        {"name": "PYTORCH_CUDA_ALLOC_CONF", "value": "expandable_segments:True"}]}]}}}})");
  } else if (change.starts_with("training.gradientAccumulation: ")) {
    spec.training.gradient_accumulation = std::stoll(value("training.gradientAccumulation: "));
  } else if (change.starts_with("training.batchSizePerTrainer: ")) {
    spec.training.batch_size_per_trainer = std::stoll(value("training.batchSizePerTrainer: "));
  } else if (change.starts_with("provisioning.maxTrainers: ")) {
    spec.provisioning.max_trainers = std::stoll(value("provisioning.maxTrainers: "));
  } else if (change == "provisioning.placement: HBMOrSwap") {
    spec.provisioning.placement = crds::Placement::kHBMOrSwap;
  } else if (change == "training.checkpointSaving: FullOffloaded") {
    spec.training.checkpoint_saving = crds::CheckpointSaving::kFullOffloaded;
  } else if (change.starts_with("training.parallelism.tensor: ")) {
    spec.training.parallelism.tensor = std::stoll(value("training.parallelism.tensor: "));
    spec.training.parallelism.sequence = true;
  } else if (change.starts_with("provisioning.hostMemoryPerTrainer: ")) {
    spec.provisioning.host_memory =
        Bytes{std::stoll(value("provisioning.hostMemoryPerTrainer: "))} * (1_GiB).count;
  } else {
    ADD_FAILURE() << "unknown change " << change;
  }
}

// A DDP job that exceeds every card was admitted with the excess alone.
TEST(ChangesThatFit, ADdpJobThatExceedsEveryCardIsToldHowItWouldFit) {
  const crds::TrainingJob job = replicated(kLlama8B);
  const Cluster cluster = {available("A100-80GB", 64)};
  const Provision answer = with_changes(job, cluster);
  ASSERT_FALSE(answer.decided());
  ASSERT_THAT(answer.changes, Not(IsEmpty()));
  EXPECT_THAT(answer.reason,
              HasSubstr("fits " + std::to_string(answer.changes.front().trainers) + " x A100-80GB with "));
  for (const Change& change : answer.changes) {
    crds::TrainingJob changed = job;
    for (const std::string& text : change.changes) {
      apply(text, changed);
    }
    const Provision fits = provision({.job = &changed, .gpus = &cluster});
    ASSERT_TRUE(fits.decided()) << change.text() << ": " << fits.reason;
    EXPECT_EQ(fits.decision->trainers, change.trainers) << change.text();
    EXPECT_EQ(fits.decision->gpu_model, change.gpu_model) << change.text();
    EXPECT_THAT(answer.warnings, Contains(HasSubstr(change.text().substr(0, 200))));
  }
  EXPECT_THAT(answer.changes,
              Contains(Field(&Change::changes, Contains("training.parallelism.strategy: FSDP2"))));
}

// With what a way names set already, the rest of it was not tried: no change was offered.
TEST(ChangesThatFit, WhatIsSetAlreadyDoesNotRuleOutTheRestOfAWay) {
  crds::TrainingJob job = llama_job(kLlama70B, 1);
  job.spec.training.activation_checkpointing = crds::ActivationCheckpointing::kFull;
  job.spec.training.parallelism.strategy = crds::ParallelStrategy::kDDP;
  const Provision answer = with_changes(job, {available("A100-80GB", 512)});
  ASSERT_FALSE(answer.decided());
  EXPECT_THAT(answer.changes,
              Contains(Field(&Change::changes, ElementsAre("training.parallelism.strategy: FSDP2"))));
}

// No number of trainers makes a model smaller that each has whole before it is sharded.
TEST(ChangesThatFit, AModelThatEachTrainerHasWholeFirstIsMadeOnTheCpu) {
  crds::TrainingJob job = llama_job(kLlama8B, 1);
  job.spec.training.initialisation = crds::Initialisation::kGPU;
  job.spec.training.loss_chunks = 8;
  const Cluster cluster = {available("A10G", 512)};
  const Provision whole = with_changes(job, cluster);
  ASSERT_FALSE(whole.decided()) << whole.reason;
  EXPECT_THAT(whole.reason, HasSubstr("the memory peaks before the first iteration"));
  EXPECT_THAT(whole.changes, Contains(Field(&Change::changes, ElementsAre("training.initialisation: CPU"))));
  job.spec.training.initialisation = crds::Initialisation::kCPU;
  const Provision moved = with_changes(job, cluster);
  ASSERT_TRUE(moved.decided()) << moved.reason;
  EXPECT_EQ(moved.decision->trainers, whole.changes.front().trainers);
  EXPECT_THAT(moved.warnings, Not(Contains(HasSubstr("made on the GPU"))));
  job.spec.training.initialisation = crds::Initialisation::kAuto;
  const Provision careful = with_changes(job, cluster);
  ASSERT_TRUE(careful.decided());
  EXPECT_EQ(careful.decision->trainers, moved.decision->trainers);
  EXPECT_THAT(careful.warnings, Contains(HasSubstr("a model that is made on the GPU does not fit")));
}

// DeepSpeed moves the whole model from the CPU, 15 GiB in 16 bits.
TEST(ChangesThatFit, AModelThatDeepSpeedMovesIsMadeWithinZeroInit) {
  crds::TrainingJob job = llama_job(kLlama8B, 1);
  job.spec.model.transformer->sequence_length = 1024;
  job.spec.model.transformer->attention = crds::AttentionKind::kSDPA;
  job.spec.training.parallelism.strategy = crds::ParallelStrategy::kZeRO3;
  job.spec.training.initialisation = crds::Initialisation::kCPU;
  job.spec.provisioning.allow_emulation = true;
  const Provision whole = with_changes(job, {available("T4", 512)});
  ASSERT_FALSE(whole.decided()) << whole.reason;
  EXPECT_THAT(whole.reason, HasSubstr("Make it within deepspeed.zero.Init"));
  EXPECT_THAT(whole.changes, Contains(Field(&Change::changes, ElementsAre("training.initialisation: Meta"))));
}

// FSDP2 pads the 8 rows of the experts' tensor to the number of shards, so that more trainers take more.
TEST(ChangesThatFit, ExpertsOfOneTensorAreSplit) {
  crds::TrainingJob job = llama_job(kLlama8B, 1);
  job.spec.model.transformer->experts = 8;
  job.spec.model.transformer->experts_per_token = 2;
  const Cluster cluster = {available("A100-80GB", 512)};
  job.spec.training.parallelism.strategy = crds::ParallelStrategy::kFSDP2;
  job.spec.provisioning.min_trainers = 256;
  job.spec.provisioning.max_trainers = 512;
  const Provision answer = with_changes(job, cluster);
  ASSERT_FALSE(answer.decided()) << answer.reason;
  EXPECT_THAT(answer.changes,
              Contains(Field(&Change::changes, ElementsAre("model.transformer.splitExperts: true"))));
  EXPECT_THAT(answer.reason, HasSubstr("the largest tensor is layers."));
  EXPECT_THAT(answer.reason, HasSubstr("experts"));
}

// Logits of 128,256 tokens x 128,256 words are 61 GiB: the message named no tensor, and no change of the loss.
TEST(ChangesThatFit, LogitsThatExceedACardAreNamedAndTakenInParts) {
  crds::TrainingJob job = replicated(kLlama8B);
  job.spec.model.transformer->sequence_length = 128'256;
  job.spec.training.batch_size_per_trainer = 1;
  const Provision answer = with_changes(job, {available("H200", 64)});
  ASSERT_FALSE(answer.decided());
  EXPECT_THAT(answer.reason, HasSubstr("the largest tensor is loss.log_softmax (activation) with 61.3 GiB"));
  EXPECT_THAT(answer.reason, HasSubstr("more trainers would not take less each"));
  EXPECT_THAT(answer.changes, Contains(Field(&Change::changes, Contains("training.lossChunks: 8"))));
}

// They took all the time of whoever asked, who then had none for the next decision: DeadlineExceeded.
TEST(ChangesThatFit, TakeHalfOfTheTimeThatIsLeft) {
  const crds::TrainingJob job = replicated(kLlama70B);
  const Cluster cluster = {available("A100-80GB", 64)};
  const Budget::Time before = std::chrono::steady_clock::now();
  const Budget::Time deadline = before + std::chrono::hours(1);
  Budget budget({.deadline = deadline});
  std::vector<Budget::Time> given;
  const ChangesThatFit changes = changes_that_fit({.job = &job, .gpus = &cluster, .budget = &budget},
                                                  [&](const ProvisionRequest& trial) {
                                                    given.push_back(trial.budget->limits().deadline);
                                                    return Provision();
                                                  });
  const Budget::Time after = std::chrono::steady_clock::now();
  EXPECT_THAT(changes.found, IsEmpty());
  EXPECT_TRUE(changes.all_tried);
  ASSERT_THAT(given, Not(IsEmpty()));
  EXPECT_THAT(given, Each(given.front())) << "all of them together";
  EXPECT_GE(given.front(), before + (deadline - before) / 2);
  EXPECT_LE(given.front(), after + (deadline - after) / 2);
}

TEST(ChangesThatFit, NoneIsTriedWhenTheTimeIsUp) {
  const crds::TrainingJob job = replicated(kLlama70B);
  const Cluster cluster = {available("A100-80GB", 64)};
  Budget budget({.deadline = std::chrono::steady_clock::now() - std::chrono::hours(1)});
  const auto decide = [](const ProvisionRequest&) {
    ADD_FAILURE() << "a change was tried";
    return Provision();
  };
  const ChangesThatFit changes = changes_that_fit({.job = &job, .gpus = &cluster, .budget = &budget}, decide);
  EXPECT_THAT(changes.found, IsEmpty());
  EXPECT_FALSE(changes.all_tried);
}

TEST(ChangesThatFit, ATrialThatIsCutOffIsToldFromOneThatDoesNotFit) {
  const crds::TrainingJob job = replicated(kLlama70B);
  const Cluster cluster = {available("A100-80GB", 64)};
  Budget budget;
  const auto with = [&](const char* event_reason) {
    return changes_that_fit({.job = &job, .gpus = &cluster, .budget = &budget}, [&](const ProvisionRequest&) {
      Provision answer;
      answer.event_reason = event_reason;
      return answer;
    });
  };
  EXPECT_TRUE(with("NoFittingGPU").all_tried);
  EXPECT_FALSE(with("TooLarge").all_tried);
}

TEST(ChangesThatFit, ThatNoneWasFoundIsTold) {
  crds::TrainingJob job = replicated(kLlama70B);
  job.spec.training.batch_size_per_trainer = 1;
  job.spec.provisioning.max_trainers = 1;
  const Provision answer = with_changes(job, {available("T4", 1, 1)});
  ASSERT_FALSE(answer.decided());
  ASSERT_THAT(answer.changes, IsEmpty());
  EXPECT_THAT(answer.warnings, Contains(HasSubstr("none of the changes that were tried makes the job fit")));
}

TEST(ChangesThatFit, AFullCheckpointThatIsThePeakGoesThroughTheHost) {
  crds::TrainingJob job = llama_job(kLlama8B, 1);
  job.spec.training.parallelism.strategy = crds::ParallelStrategy::kFSDP2;
  job.spec.training.checkpoint_saving = crds::CheckpointSaving::kFull;
  job.spec.trainers.replicas = 16;
  job.spec.provisioning.max_trainers = 32;
  const Cluster cluster = {available("A100-80GB", 64)};
  const Provision answer = with_changes(job, cluster);
  ASSERT_FALSE(answer.decided()) << "8 billion parameters and their states, 96 GB, are gathered";
  ASSERT_THAT(answer.changes, Not(IsEmpty()));
  EXPECT_THAT(answer.changes.front().changes, ElementsAre("training.checkpointSaving: FullOffloaded"));
  apply(answer.changes.front().changes.front(), job);
  EXPECT_TRUE(provision({.job = &job, .gpus = &cluster}).decided());
}

// Four GPUs of 40 GB hold weights, gradients and fp32 parameters of Llama 3 8B, 10 bytes each, but not all of Adam's states.
TEST(ChangesThatFit, AMegatronJobIsToldHowMuchOfItsOptimizerTheHostCanHave) {
  crds::TrainingJob job = llama_job(kLlama8B, 1, 4, 4);
  job.spec.training.parallelism.strategy = crds::ParallelStrategy::kMegatron;
  job.spec.training.parallelism.sequence = true;
  const Cluster cluster = {available("A100-40GB", 1)};
  const Provision answer = with_changes(job, cluster);
  ASSERT_FALSE(answer.decided());
  const auto offloads = Contains(HasSubstr(kOffload));
  ASSERT_THAT(answer.changes, Contains(Field(&Change::changes, offloads)));
  for (const Change& change : answer.changes) {
    if (::testing::Matches(offloads)(change.changes)) {
      for (const std::string& text : change.changes) {
        apply(text, job);
      }
      break;
    }
  }
  EXPECT_TRUE(provision({.job = &job, .gpus = &cluster}).decided());
  const std::int64_t percent = job.spec.training.parallelism.offload_percent;
  ASSERT_THAT(percent, ::testing::AnyOf(25, 50, 75, 100));
  if (percent > 25) {
    job.spec.training.parallelism.offload_percent = percent - 25;
    EXPECT_FALSE(provision({.job = &job, .gpus = &cluster}).decided());
  }
}

// "2.56 TB of Adam tables: refused, 4.77 TiB missing"; more of another GPU model would do.
TEST(ChangesThatFit, TablesThatExceedMaxTrainersAreToldTheNumberThatHoldsThem) {
  crds::TrainingJob job = decode(job_object(600, 4 * kGiBOfRows, 16));
  job.spec.provisioning.max_trainers = 16;
  const Cluster cluster = {available("T4", 8), available("A100-80GB", 32)};
  const Provision answer = with_changes(job, cluster);
  ASSERT_FALSE(answer.decided());
  ASSERT_THAT(answer.changes, Not(IsEmpty()));
  const Change& cheapest = answer.changes.front();
  EXPECT_EQ(cheapest.gpu_model, "A100-80GB");
  ASSERT_THAT(cheapest.changes,
              ElementsAre("provisioning.maxTrainers: " + std::to_string(cheapest.trainers)));
  job.spec.provisioning.max_trainers = cheapest.trainers;
  EXPECT_EQ(provision({.job = &job, .gpus = &cluster}).decision->trainers, cheapest.trainers);
}

TEST(ChangesThatFit, AClusterThatIsTooSmallIsTold) {
  const crds::TrainingJob job = decode(job_object(600, 4 * kGiBOfRows, 16));
  const Provision answer = with_changes(job, {available("A100-80GB", 2)});
  ASSERT_FALSE(answer.decided());
  EXPECT_THAT(answer.changes,
              Contains(Field(&Change::changes, Contains("more GPUs in the cluster, which has 16"))));
}

TEST(ChangesThatFit, HostMemoryTakesTables) {
  crds::TrainingJob job = decode(job_object(600, 4 * kGiBOfRows, 16));
  job.spec.provisioning.max_trainers = 16;
  Cluster cluster = {available("A100-80GB", 2)};
  cluster.front().host_memory = 2048_GiB;
  const Provision answer = with_changes(job, cluster);
  ASSERT_FALSE(answer.decided());
  EXPECT_THAT(answer.changes,
              Contains(Field(&Change::changes, ElementsAre("provisioning.hostMemoryPerTrainer: 192Gi"))));
  job.spec.provisioning.host_memory = 192_GiB;
  const Provision fits = provision({.job = &job, .gpus = &cluster});
  ASSERT_TRUE(fits.decided()) << fits.reason;
  EXPECT_THAT(fits.decision->plan.ranks, Contains(Field(&RankLoad::host_memory, ::testing::Gt(Bytes{}))));
}

TEST(ChangesThatFit, AreOnlyLookedForWhereSomethingIsMissing) {
  const crds::TrainingJob job = llama_job(kLlama70B, 1);
  EXPECT_THAT(with_changes(job, {available("H100-80GB", 64)}).changes, IsEmpty());
  const crds::TrainingJob too_large = replicated(kLlama8B);
  const Cluster cluster = {available("A100-80GB", 64)};
  EXPECT_THAT(provision({.job = &too_large, .gpus = &cluster}).changes, IsEmpty());
}

// One GPU, and a model whose weights alone exceed it: nothing that keeps the model in GPU memory helps.
TEST(ChangesThatFit, WhatNothingElseHoldsTrainsThroughTheHost) {
  crds::TrainingJob job = replicated(kLlama70B);
  job.spec.model.transformer->sequence_length = 512;
  job.spec.training.batch_size_per_trainer = 1;
  job.spec.trainers.replicas = 1;
  job.spec.trainers.per_node = 1;
  Cluster cluster = {available("A100-80GB", 1, 1)};
  cluster.front().host_memory = 2048_GiB;
  const Provision answer = with_changes(job, cluster);
  ASSERT_FALSE(answer.decided());
  ASSERT_THAT(answer.changes, Not(IsEmpty()));
  EXPECT_THAT(answer.changes,
              Contains(Field(&Change::changes, ElementsAre("provisioning.placement: HBMOrSwap"))));
  apply("provisioning.placement: HBMOrSwap", job);
  const Provision fits = provision({.job = &job, .gpus = &cluster});
  ASSERT_TRUE(fits.decided()) << fits.reason;
  EXPECT_TRUE(fits.decision->swap);
}

}  // namespace
}  // namespace plimsoll::estimator
