#include "estimator/provisioner/through_host.h"

#include <gmock/gmock.h>

#include "tests/estimator/llama_job.h"
#include "tests/estimator/provisioner_fixture.h"

namespace plimsoll::estimator {
namespace {

using plimsoll::testing::available;
using plimsoll::testing::Cluster;
using plimsoll::testing::decode;
using plimsoll::testing::job_object;
using plimsoll::testing::provision;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::kLlama8B;
using testing::llama_job;

constexpr std::int64_t kGiBOfRows = 2'097'152;  // rows of 128 FP32 columns in a GiB

// One node of eight A100-40GB with a terabyte: 320 GiB of GPU memory.
Cluster one_node(Bytes host_memory) {
  AvailableGpu gpu = available("A100-40GB", 1);
  gpu.host_memory = host_memory;
  return {gpu};
}

Json job(const char* placement) {
  Json object = job_object(400, kGiBOfRows, 8);  // 400 GiB of tables
  object["spec"]["model"]["dlrm"]["tables"][0]["lookupFrequency"] = "0.01";
  object["spec"]["provisioning"]["placement"] = placement;
  return object;
}

TEST(ThroughHost, TablesThatNoGpusHoldAreKeptOnTheHost) {
  EXPECT_FALSE(provision(job("HBM"), one_node(1024_GiB)).decided());
  const Provision answer = provision(job("HBMOrSwap"), one_node(1024_GiB));
  ASSERT_TRUE(answer.decided()) << answer.reason;
  const Decision& decision = *answer.decision;
  EXPECT_FALSE(decision.swap);
  EXPECT_GT(host_bytes_of(decision.plan), Bytes{});
  ASSERT_TRUE(decision.host_memory_per_trainer);
  EXPECT_LE(host_bytes_of(decision.plan), *decision.host_memory_per_trainer);
  EXPECT_GT(decision.host_memory, host_bytes_of(decision.plan) * decision.trainers);
  EXPECT_LE(decision.host_memory, 1024_GiB);
  EXPECT_THAT(answer.reason, HasSubstr("of embedding tables in host memory"));
}

TEST(ThroughHost, WhatFitsInGpuMemoryIsNotMoved) {
  Json object = job("HBMOrSwap");
  object["spec"]["model"]["dlrm"]["tables"][0]["count"] = 100;
  const Provision answer = provision(object, one_node(1024_GiB));
  ASSERT_TRUE(answer.decided());
  EXPECT_EQ(host_bytes_of(answer.decision->plan), Bytes{});
  EXPECT_EQ(answer.decision->host_memory, Bytes{});
}

TEST(ThroughHost, NodesWithoutEnoughMemoryAreRuledOut) {
  for (const Bytes memory : {Bytes{}, 64_GiB}) {
    const Provision answer = provision(job("HBMOrSwap"), one_node(memory));
    EXPECT_FALSE(answer.decided()) << to_string(memory);
    EXPECT_EQ(answer.event_reason, "NoFittingGPU");
  }
}

// One node of eight of each model.
Cluster nodes_with(Bytes host_memory, std::initializer_list<const char*> names = {"A100-80GB"}) {
  Cluster cluster;
  for (const char* name : names) {
    cluster.push_back(available(name, 1));
    cluster.back().host_memory = host_memory;
  }
  return cluster;
}

// Llama 3 8B on each trainer whole: 16 bytes a parameter are more than any card has.
crds::TrainingJob llama(crds::Placement placement = crds::Placement::kHBMOrSwap) {
  crds::TrainingJob job = llama_job(kLlama8B, 4, 1, 8);
  job.spec.training.parallelism.strategy = crds::ParallelStrategy::kDDP;
  job.spec.provisioning.placement = placement;
  job.spec.trainers.replicas = 4;
  return job;
}

TEST(ThroughHost, WhatNoGpusHoldTrainsThroughTheHost) {
  EXPECT_FALSE(provision(llama(crds::Placement::kHBM), nodes_with(1024_GiB)).decided());
  const Provision answer = provision(llama(), nodes_with(1024_GiB));
  ASSERT_TRUE(answer.decided()) << answer.reason << '\n' << ::testing::PrintToString(answer.warnings);
  const Decision& decision = *answer.decision;
  ASSERT_TRUE(decision.swap);
  const PlannedSwap& planned = decision.swap->planned;
  EXPECT_EQ(decision.trainers, 4) << "as many as requested";
  EXPECT_EQ(decision.per_node, 4) << "in one node";
  EXPECT_EQ(planned.plan.gpus, 4);
  EXPECT_EQ(planned.plan.samples, 16) << "the global batch is kept";
  EXPECT_EQ(decision.batch.batch_size, 16) << "which one process takes";
  EXPECT_EQ(decision.swap->layers, 34U) << "the embedding, 32 blocks, the head";
  EXPECT_TRUE(check_plan(planned.plan, 34).ok());
  EXPECT_LE(planned.device_memory, decision.swap->capacity);
  EXPECT_LE(decision.estimate.peak.upper_bound, 80_GiB);
  EXPECT_EQ(decision.estimate.breakdown.total(), decision.estimate.peak.upper_bound);
  EXPECT_GE(planned.seconds, planned.bound_seconds);
  EXPECT_GT(decision.swap->slowdown(), 1);
  EXPECT_GT(decision.host_memory, planned.host.total());
  EXPECT_LE(decision.host_memory, 1024_GiB);
  ASSERT_TRUE(decision.throughput);
  EXPECT_DOUBLE_EQ(decision.throughput->iteration.samples_per_second, 16 / planned.seconds);
  EXPECT_THAT(answer.reason, HasSubstr("4 x A100-80GB train the job through host memory"));
  EXPECT_THAT(answer.warnings, Contains(HasSubstr("through host memory")));
}

TEST(ThroughHost, ThereIsNoSwapPlanWhereTheFeatureIsOff) {
  const crds::TrainingJob job = llama();
  const Cluster cluster = nodes_with(1024_GiB);
  const Provision answer = estimator::provision({.job = &job, .gpus = &cluster, .swap_training = false});
  EXPECT_FALSE(answer.decided());
  EXPECT_EQ(answer.event_reason, "NoFittingGPU");
  EXPECT_THAT(answer.warnings,
              Contains(HasSubstr("provisioning.placement HBMOrSwap: the feature gate SwapTraining is off")));

  // One GPU, which nothing else makes hold it.
  crds::TrainingJob asked = llama_job(testing::kLlama70B, 1, 1, 1);
  asked.spec.training.parallelism.strategy = crds::ParallelStrategy::kDDP;
  asked.spec.model.transformer->sequence_length = 512;
  asked.spec.trainers.replicas = 1;
  Cluster single = {available("A100-80GB", 1, 1)};
  single.front().host_memory = 2048_GiB;
  for (const bool on : {true, false}) {
    const Provision other =
        estimator::provision({.job = &asked, .gpus = &single, .suggest = true, .swap_training = on});
    bool suggested = false;
    for (const Change& change : other.changes) {
      suggested = suggested || change.text().find("HBMOrSwap") != std::string::npos;
    }
    EXPECT_EQ(suggested, on) << "what is off is not suggested";
  }
}

TEST(ThroughHost, TablesOnTheHostAreNotOfTheFeatureOfSwapPlans) {
  const crds::TrainingJob with_tables = decode(job("HBMOrSwap"));
  const Cluster cluster = one_node(1024_GiB);
  EXPECT_TRUE(
      estimator::provision({.job = &with_tables, .gpus = &cluster, .swap_training = false}).decided());
}

// Four are requested and four are given, but not as the user may think.
TEST(ThroughHost, IsToldOnceEvenWhereTheNumberIsAsRequested) {
  crds::TrainingJob asked = llama();
  asked.spec.trainers = {.replicas = 4, .per_node = 4, .gpu_model = "A100-80GB", .replicas_given = true};
  asked.raw =
      plimsoll::testing::parse(R"({"metadata": {"name": "llama"}, "spec": {"trainers": {"replicas": 4}}})");
  const Provision answer = provision(asked, nodes_with(1024_GiB));
  ASSERT_TRUE(answer.decided());
  EXPECT_EQ(answer.event_reason, "Provisioned");
  EXPECT_THAT(answer.warnings, Contains(HasSubstr("through host memory")));
  std::string why;
  const std::optional<Json> admitted =
      plimsoll::testing::apply_patch(asked.raw, patch_for(asked, answer), why);
  ASSERT_TRUE(admitted) << why;
  asked.raw = *admitted;
  EXPECT_EQ(provision(asked, nodes_with(1024_GiB)).event_reason, "AlreadyRight");
}

TEST(ThroughHost, ItIsTheLastResort) {
  crds::TrainingJob sharded = llama();
  sharded.spec.training.parallelism.strategy = crds::ParallelStrategy::kFSDP2;
  sharded.spec.training.batch_size_per_trainer = 1;
  const Provision answer = provision(sharded, nodes_with(1024_GiB));
  ASSERT_TRUE(answer.decided());
  EXPECT_FALSE(answer.decision->swap) << "more trainers hold it";
}

TEST(ThroughHost, IsInOneNodeWhateverIsRequested) {
  crds::TrainingJob many = llama();
  many.spec.trainers.replicas = 32;
  many.spec.provisioning.max_trainers = 64;
  const Provision answer = provision(many, nodes_with(1024_GiB));
  ASSERT_TRUE(answer.decided()) << answer.reason;
  EXPECT_EQ(answer.decision->trainers, 8);
  EXPECT_EQ(answer.decision->swap->planned.plan.samples, 128);
  EXPECT_THAT(answer.reason, HasSubstr("8 x A100-80GB of one node instead of 32"));
  many.spec.provisioning.min_trainers = 16;
  const Provision refused = provision(many, nodes_with(1024_GiB));
  EXPECT_FALSE(refused.decided());
  EXPECT_THAT(refused.warnings, Contains(HasSubstr("a swap plan runs in one node")));
}

TEST(ThroughHost, NeverWhereTheRequiredThroughputWouldBeMissed) {
  crds::TrainingJob fast = llama();
  fast.spec.provisioning.min_throughput = "100000";
  const Provision answer = provision(fast, nodes_with(1024_GiB));
  EXPECT_FALSE(answer.decided());
  EXPECT_THAT(answer.warnings, Contains(HasSubstr("provisioning.minThroughput is 100000")));
}

TEST(ThroughHost, AWholeNodeIsTakenWhereTheRequestedGpusAreTooSlow) {
  const Provision four = provision(llama(), nodes_with(1024_GiB));
  ASSERT_TRUE(four.decided());
  crds::TrainingJob faster = llama();
  faster.spec.provisioning.min_throughput =
      std::to_string(four.decision->throughput->iteration.samples_per_second * 1.05);
  const Provision answer = provision(faster, nodes_with(1024_GiB));
  ASSERT_TRUE(answer.decided()) << answer.reason;
  EXPECT_EQ(answer.decision->trainers, 8);
}

TEST(ThroughHost, NodesWithoutTheHostMemoryAreRuledOut) {
  const Provision answer = provision(llama(), nodes_with(32_GiB));
  EXPECT_FALSE(answer.decided());
  EXPECT_THAT(answer.warnings, Contains(HasSubstr("of host memory, and a node has 32.0 GiB")));
  EXPECT_TRUE(provision(llama(), nodes_with(Bytes{})).decided())
      << "a node's memory that is not known may do";
}

TEST(ThroughHost, OfSeveralModelsTheFastestOrTheCheapestIsTaken) {
  const Cluster both = nodes_with(1024_GiB, {"A100-80GB", "H100-80GB"});
  const Provision fastest = provision(llama(), both);
  ASSERT_TRUE(fastest.decided());
  EXPECT_EQ(fastest.decision->gpu_model, "H100-80GB");
  crds::TrainingJob cheap = llama();
  cheap.spec.provisioning.objective = crds::Objective::kLowestCost;
  const Provision cheapest = provision(cheap, both);
  ASSERT_TRUE(cheapest.decided());
  EXPECT_EQ(cheapest.decision->gpu_model, "A100-80GB");
}

TEST(ThroughHost, ClippingTheNormUpdatesAtTheEndOfAnIteration) {
  const Provision before = provision(llama(), nodes_with(1024_GiB));
  crds::TrainingJob clipping = llama();
  clipping.spec.training.gradient_clipping = crds::GradientClipping::kNorm;
  const Provision answer = provision(clipping, nodes_with(1024_GiB));
  ASSERT_TRUE(before.decided() && answer.decided());
  EXPECT_GT(answer.decision->swap->planned.seconds, before.decision->swap->planned.seconds);
}

// A plan that was to take 20 GiB took 90 of 80: the next takes at most eight ninths of that, whatever the GPU would leave it.
TEST(ThroughHost, AnAttemptThatRanOutUnderAPlanIsFollowedByAPlanThatTakesLess) {
  crds::TrainingJob wanted = llama();
  wanted.spec.model.transformer->sequence_length = 1024;
  const Cluster cluster = nodes_with(1024_GiB);
  ProvisionRequest request{.job = &wanted, .gpus = &cluster};
  const auto peak = [&] {
    const Provision answer = estimator::provision(request);
    EXPECT_TRUE(answer.decided()) << answer.reason;
    return answer.decided() ? answer.decision->estimate.peak.upper_bound : Bytes{};
  };
  const Bytes memory = cluster.front().model.memory;
  const Bytes first = peak();
  request.failed = {{.gpu_model = "A100-80GB",
                     .trainers = 4,
                     .per_node = 4,
                     .capacity = memory,
                     .needed = memory + 10_GiB,
                     .swap_plan = true,
                     .estimated = first}};
  const Bytes second = peak();
  EXPECT_LT(static_cast<double>(second.count), static_cast<double>(first.count) * 8 / 9);
  request.failed.push_back(request.failed.front());
  request.failed.back().estimated = second;
  EXPECT_LT(peak(), second) << "and again";
}

TEST(ThroughHost, WhatHasNoLayersIsRefusedByName) {
  crds::TrainingJob split = llama();
  split.spec.training.parallelism.tensor = 2;
  split.spec.training.parallelism.strategy = crds::ParallelStrategy::kAuto;
  split.spec.model.transformer->hidden *= 4;
  split.spec.model.transformer->ffn *= 4;
  const Provision answer = provision(split, nodes_with(1024_GiB));
  EXPECT_FALSE(answer.decided());
  EXPECT_THAT(answer.warnings, Contains(HasSubstr("provisioning.placement HBMOrSwap: ")));
  EXPECT_THAT(answer.warnings, Contains(HasSubstr("tensor")));
}

TEST(ThroughHost, EqualRequestsHaveEqualPlans) {
  const Provision one = provision(llama(), nodes_with(1024_GiB));
  const Provision two = provision(llama(), nodes_with(1024_GiB));
  ASSERT_TRUE(one.decided() && two.decided());
  EXPECT_EQ(one.decision->swap->planned.plan.backward_packs, two.decision->swap->planned.plan.backward_packs);
  EXPECT_EQ(one.reason, two.reason);
}

TEST(ThroughHost, ABudgetEndsIt) {
  const crds::TrainingJob wanted = llama();
  const Cluster cluster = nodes_with(1024_GiB);
  Budget budget({.work = 50'000});
  const Provision answer = estimator::provision({.job = &wanted, .gpus = &cluster, .budget = &budget});
  EXPECT_FALSE(answer.decided());
  EXPECT_EQ(answer.event_reason, "TooLarge");
}

}  // namespace
}  // namespace plimsoll::estimator
