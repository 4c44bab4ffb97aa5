#include "estimator/provisioner/provisioner.h"
#include "estimator/provisioner/trainer_loads.h"

#include <gmock/gmock.h>

#include "tests/estimator/provisioner_fixture.h"

namespace plimsoll::estimator {
namespace {

using plimsoll::testing::available;
using plimsoll::testing::Cluster;
using plimsoll::testing::decode;
using plimsoll::testing::four_models;
using plimsoll::testing::job_object;
using plimsoll::testing::parse;
using plimsoll::testing::provision;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::int64_t kGiBOfRows = 2'097'152;  // rows of 128 FP32 columns in a GiB

const Alternative* candidate(const Provision& answer, const std::string& model) {
  for (const Alternative& one : answer.alternatives) {
    if (one.gpu_model == model) {
      return &one;
    }
  }
  return nullptr;
}

TEST(Provisioner, CutsAnOversizedRequestToWhatHoldsIt) {
  const Provision answer = provision(job_object(400, 2 * kGiBOfRows), four_models());
  ASSERT_TRUE(answer.decided()) << answer.reason;
  const Decision& decision = *answer.decision;
  EXPECT_EQ(answer.event_reason, "Provisioned");
  EXPECT_EQ(decision.gpu_model, "A100-80GB");  // as many GPUs as the H100 would take, and cheaper
  EXPECT_EQ(decision.trainers, 16);            // 800 GiB; 8 hold 608 GiB at most, 16 hold 1216
  EXPECT_EQ(decision.per_node, 8);
  EXPECT_THAT(answer.reason, HasSubstr("16 x A100-80GB"));
  EXPECT_THAT(answer.reason, HasSubstr("112 saved"));
  EXPECT_THAT(answer.warnings, Contains(HasSubstr("112 saved")));
}

TEST(Provisioner, LeavesAJobAShareOfWhatItRequestsAndSaysWhatWouldHoldIt) {
  const crds::TrainingJob job = decode(job_object(4, kGiBOfRows));
  const std::vector<AvailableGpu> gpus = {available("A100-80GB", 64)};
  const Provision least = estimator::provision({.job = &job, .gpus = &gpus});
  ASSERT_TRUE(least.decided());
  EXPECT_EQ(least.decision->trainers, 1);
  const Provision kept = estimator::provision({.job = &job, .gpus = &gpus, .min_share_of_asked = 0.25});
  ASSERT_TRUE(kept.decided());
  EXPECT_EQ(kept.decision->trainers, 32);
  EXPECT_THAT(kept.reason, HasSubstr("no fewer than 25% of those requested are given"));
  EXPECT_THAT(kept.warnings, Contains(HasSubstr("1 would hold the job; at least 25% of those requested")));
}

TEST(Provisioner, TheDecisionHoldsOnTheFullestTrainerAndOneNodeLessDoesNot) {
  const crds::TrainingJob job = decode(job_object(100, 9 * kGiBOfRows));
  const Provision answer = provision(job, {available("A100-80GB", 64)});
  ASSERT_TRUE(answer.decided()) << answer.reason;
  const Decision& decision = *answer.decision;
  const Bytes usable = decision.capacity - Bytes::ceil(0.05 * static_cast<double>(decision.capacity.count));
  EXPECT_LE(decision.estimate.peak.upper_bound, usable);
  EXPECT_GE(decision.estimate.breakdown.embeddings, decision.plan.max_memory);

  EstimateRequest reserved;
  reserved.model = &job.spec.model;
  reserved.training = &job.spec.training;
  const GpuModel gpu = available("A100-80GB", 1).model;
  reserved.gpu = &gpu;
  reserved.trainers = decision.trainers;
  ShardRequest request;
  request.tables = expand_tables(job.spec.model.dlrm->tables);
  request.topology = {decision.trainers, 8, gpu.intra_node_bandwidth, gpu.inter_node_bandwidth,
                      gpu.hbm_bandwidth};
  request.batch_size = 512;
  request.allocated_bytes = true;  // what column blocks take beyond torchrec's count fills a card, too
  request.budget = usable - estimate_memory(reserved)->peak.upper_bound;
  EXPECT_THAT(verify(request, decision.plan), IsEmpty());
  request.topology.trainers -= 8;
  EXPECT_NE(rule_out(request).constraint, "");
}

TEST(Provisioner, RaisesARequestThatIsTooSmallAndSaysWhy) {
  const Provision answer = provision(job_object(400, 2 * kGiBOfRows, 8), four_models());
  ASSERT_TRUE(answer.decided());
  EXPECT_EQ(answer.decision->trainers, 16);
  EXPECT_THAT(answer.reason, HasSubstr("8 requested, too few to hold it"));
}

// The host's memory ran out again and again, though ranks x model size was known.
TEST(Provisioner, AMemoryLimitBelowWhatTheTrainersLoadIsAWarning) {
  const auto warnings_of = [](const char* loading, const char* limit) {
    Json job = job_object(1, kGiBOfRows);
    job["spec"]["model"] = parse(
        R"({"transformer": {"layers": 32, "hidden": 4096, "heads": 32, "ffn": 11008, "vocab": 32000, "seqLen": 512}})");
    job["spec"]["training"] = parse(
        R"({"batchSizePerTrainer": 1, "optimizer": "AdamW", "precision": "BF16Mixed", "activationCheckpointing": "Full",
            "parallelism": {"strategy": "FSDP2"}})");
    job["spec"]["training"]["checkpointLoading"] = loading;
    job["spec"]["template"]["spec"] =
        parse(R"({"containers": [{"name": "trainer", "resources": {"limits": {}}}]})");
    job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = limit;
    return provision(job, {available("A100-80GB", 64)}).warnings;
  };
  const auto of_host = HasSubstr(
      "of host memory, and its 8 trainers take about 233 GiB: 32.0 GiB of processes, 201 GiB of the checkpoint");
  EXPECT_THAT(warnings_of("EveryRank", "160Gi"), Contains(of_host));
  for (const auto& [loading, limit] : {std::pair("EveryRank", "240Gi"), std::pair("FirstRank", "160Gi"),
                                       std::pair("Auto", "16Gi"), std::pair("None", "16Gi")}) {
    EXPECT_THAT(warnings_of(loading, limit), Not(Contains(HasSubstr("of host memory")))) << loading;
  }
}

TEST(Provisioner, SaysWhenTheRequestWasRight) {
  const Provision answer = provision(job_object(400, 2 * kGiBOfRows, 16), {available("A100-80GB", 64)});
  ASSERT_TRUE(answer.decided());
  EXPECT_EQ(answer.event_reason, "AlreadyRight");
  EXPECT_THAT(answer.reason, HasSubstr("as requested"));
  EXPECT_THAT(answer.warnings, IsEmpty());
}

TEST(Provisioner, TakesAnyCountUpToANodeAndWholeNodesAbove) {
  const Cluster cluster = {available("A100-80GB", 64)};
  const auto trainers_for = [&](std::int64_t gib) {
    const Provision answer = provision(job_object(gib, kGiBOfRows), cluster);
    return answer.decided() ? answer.decision->trainers : -1;
  };
  EXPECT_EQ(trainers_for(1), 1);
  EXPECT_GT(trainers_for(150), 1);
  EXPECT_LT(trainers_for(150), 5);
  EXPECT_EQ(trainers_for(1300) % 8, 0);
  EXPECT_GT(trainers_for(1300), 16);
}

TEST(Provisioner, NodesWithFewerGpusAndASmallerPerNodeAreObeyed) {
  Provision answer = provision(job_object(400, 2 * kGiBOfRows), {available("A100-80GB", 64, 4)});
  ASSERT_TRUE(answer.decided());
  EXPECT_EQ(answer.decision->per_node, 4);
  EXPECT_EQ(answer.decision->trainers % 4, 0);
  Json object = job_object(400, 2 * kGiBOfRows);
  object["spec"]["trainers"]["perNode"] = 2;
  answer = provision(object, {available("A100-80GB", 64)});
  ASSERT_TRUE(answer.decided());
  EXPECT_EQ(answer.decision->per_node, 2);
  EXPECT_EQ(answer.decision->trainers % 2, 0);
}

TEST(Provisioner, GpuModelsLimitTheChoiceInAnyCaseAndUnknownNamesWarn) {
  Json object = job_object(100, kGiBOfRows);
  object["spec"]["provisioning"]["gpuModels"] = parse(R"(["v100-32gb", "A1000"])");
  const Provision answer = provision(object, four_models());
  ASSERT_TRUE(answer.decided());
  EXPECT_EQ(answer.decision->gpu_model, "V100-32GB");
  EXPECT_EQ(answer.alternatives.size(), 1U);
  EXPECT_THAT(answer.warnings, Contains(HasSubstr("no node has a GPU called \"A1000\"")));
  object["spec"]["provisioning"]["gpuModels"] = parse(R"(["A1000"])");
  EXPECT_EQ(provision(object, four_models()).event_reason, "NoGPUInCluster");
}

TEST(Provisioner, TheAskedGpuModelIsARequestAndNoConstraint) {
  Json object = job_object(100, kGiBOfRows);
  object["spec"]["trainers"]["gpuModel"] = "V100-32GB";
  const Provision answer = provision(object, four_models());
  ASSERT_TRUE(answer.decided());
  EXPECT_EQ(answer.decision->gpu_model, "A100-80GB");
  EXPECT_THAT(answer.reason, HasSubstr("128 x V100-32GB requested"));
}

TEST(Provisioner, MinAndMaxTrainersBoundTheCount) {
  Json object = job_object(1, kGiBOfRows, 4);
  object["spec"]["provisioning"]["minTrainers"] = 12;
  Provision answer = provision(object, four_models());
  ASSERT_TRUE(answer.decided());
  EXPECT_EQ(answer.decision->trainers, 16);  // 12 in whole nodes
  EXPECT_THAT(answer.reason, HasSubstr("minTrainers"));

  object = job_object(400, 2 * kGiBOfRows);
  object["spec"]["provisioning"]["maxTrainers"] = 12;
  answer = provision(object, four_models());
  EXPECT_FALSE(answer.decided());
  EXPECT_EQ(answer.event_reason, "NoFittingGPU");

  object["spec"]["provisioning"]["minTrainers"] = 10;  // no multiple of 8 lies from 10 to 12
  answer = provision(object, four_models());
  EXPECT_EQ(answer.event_reason, "NoFittingGPU");
  EXPECT_THAT(answer.reason, HasSubstr("maxTrainers"));
}

TEST(Provisioner, NeverMoreThanTheClusterHasAndSaysSo) {
  Provision answer = provision(job_object(400, 2 * kGiBOfRows), {available("A100-80GB", 1)});
  EXPECT_FALSE(answer.decided());
  EXPECT_THAT(answer.reason, HasSubstr("the cluster has 8"));
  EXPECT_THAT(answer.warnings, Contains(HasSubstr("keeps its 128 trainers")));
  // With another model that has enough, that one is chosen although it takes more.
  answer =
      provision(job_object(400, 2 * kGiBOfRows), {available("A100-80GB", 1), available("V100-32GB", 64)});
  ASSERT_TRUE(answer.decided());
  EXPECT_EQ(answer.decision->gpu_model, "V100-32GB");
  ASSERT_NE(candidate(answer, "A100-80GB"), nullptr);
  EXPECT_FALSE(candidate(answer, "A100-80GB")->fits);
  EXPECT_FALSE(candidate(answer, "A100-80GB")->searched);
}

TEST(Provisioner, NodesTooSmallForAPodDoNotCount) {
  AvailableGpu mixed = available("A100-80GB", 1);
  mixed.shapes = {{8, 1}, {4, 30}};
  mixed.gpus_per_node = 8;
  mixed.total_gpus = 128;
  EXPECT_FALSE(provision(job_object(400, 2 * kGiBOfRows), {mixed}).decided());
}

TEST(Provisioner, ObjectivesDiffer) {
  Json object = job_object(400, 2 * kGiBOfRows);
  Cluster cluster = four_models();
  for (AvailableGpu& gpu : cluster) {
    gpu.model.relative_cost = gpu.model.name == "V100-32GB" ? 0.01 : gpu.model.relative_cost;
  }
  EXPECT_NE(provision(object, cluster).decision->gpu_model, "V100-32GB");
  object["spec"]["provisioning"]["objective"] = "LowestCost";
  const Provision answer = provision(object, cluster);
  ASSERT_TRUE(answer.decided());
  EXPECT_EQ(answer.decision->gpu_model, "V100-32GB");
  EXPECT_THAT(answer.reason, HasSubstr("cheapest"));
  for (const Alternative& one : answer.alternatives) {
    EXPECT_GE(one.cost, answer.alternatives.front().cost) << one.gpu_model;
  }
}

// All A100-80GB were busy and H100 idle, and the job was given A100s that it would wait for.
TEST(Provisioner, TheSoonestStartIsOnGpusThatAreFree) {
  Json object = job_object(100, kGiBOfRows, 16);
  Cluster cluster = {available("A100-80GB", 8), available("H100-80GB", 8)};
  cluster[0].free_gpus = 0;
  cluster[0].model.relative_cost = 0.1;
  const Provision cheapest = provision(object, cluster);
  ASSERT_TRUE(cheapest.decided());
  EXPECT_EQ(cheapest.decision->gpu_model, "A100-80GB");
  EXPECT_THAT(cheapest.warnings,
              Contains(HasSubstr("the job will wait; provisioning.objective SoonestStart")));
  object["spec"]["provisioning"]["objective"] = "SoonestStart";
  const Provision soonest = provision(object, cluster);
  ASSERT_TRUE(soonest.decided());
  EXPECT_EQ(soonest.decision->gpu_model, "H100-80GB");
  EXPECT_THAT(soonest.reason, HasSubstr("GPUs are what can start the soonest"));
  EXPECT_THAT(soonest.warnings, Each(Not(HasSubstr("will wait"))));
  // As many are free, and no node has those of a pod.
  cluster[0].free_gpus = 8;
  cluster[0].free_nodes = {{.gpus_per_node = 1, .nodes = 8}};
  EXPECT_EQ(provision(object, cluster).decision->gpu_model, "H100-80GB");
  object["spec"]["provisioning"]["gpuModels"] = parse(R"(["A100-80GB"])");
  EXPECT_THAT(
      provision(object, cluster).warnings,
      Contains(HasSubstr("free GPUs for a pod, though 8 of the cluster's 64 A100-80GB GPUs are free now")));
  object["spec"]["provisioning"].removeMember("gpuModels");
  cluster[1].free_gpus = 0;
  EXPECT_EQ(provision(object, cluster).decision->gpu_model, "A100-80GB") << "as FewestGPUs, where all wait";
}

// A job that had what it needs was told neither that it waits nor that its nodes have another CPU.
TEST(Provisioner, AJobThatKeepsWhatItRequestsIsWarnedToo) {
  AvailableGpu grace = available("GH200", 8);
  grace.cpu_architectures = {"arm64"};
  grace.free_gpus = 0;
  Json object = job_object(100, kGiBOfRows, 16);
  const std::int64_t least = provision(object, {grace}).decision->trainers;
  object["spec"]["trainers"]["replicas"] = least;
  object["spec"]["trainers"]["perNode"] = 8;
  object["spec"]["trainers"].removeMember("gpuModel");
  const Provision answer = provision(object, {grace});
  ASSERT_EQ(answer.event_reason, "AlreadyRight") << answer.reason;
  EXPECT_THAT(answer.warnings, Contains(HasSubstr("the job will wait")));
  EXPECT_THAT(answer.warnings, Contains(HasSubstr("nodes with GH200 are arm64")));
}

TEST(Provisioner, TiesGoToTheCheaperThenTheFasterThenTheName) {
  const auto like = [](const std::string& name, double cost, Bytes bandwidth) {
    AvailableGpu gpu = available("A100-80GB", 64);
    gpu.model.name = name;
    gpu.model.relative_cost = cost;
    gpu.model.hbm_bandwidth = bandwidth;
    return gpu;
  };
  const Json object = job_object(100, kGiBOfRows);
  const auto chosen = [&](const Cluster& cluster) { return provision(object, cluster).decision->gpu_model; };
  EXPECT_EQ(chosen({like("x", 2, 3000_GiB), like("y", 1, 2000_GiB)}), "y");
  EXPECT_EQ(chosen({like("x", 1, 2000_GiB), like("y", 1, 3000_GiB)}), "y");
  EXPECT_EQ(chosen({like("y", 1, 2000_GiB), like("x", 1, 2000_GiB)}), "x");
}

TEST(Provisioner, ModelsThatCannotWinAreNotSearched) {
  const Provision answer = provision(job_object(400, 2 * kGiBOfRows), four_models());
  ASSERT_TRUE(answer.decided());
  EXPECT_EQ(answer.alternatives.front().gpu_model, answer.decision->gpu_model);
  int searched = 0;
  for (const Alternative& one : answer.alternatives) {
    searched += one.searched ? 1 : 0;
    EXPECT_FALSE(one.reason.empty());
  }
  EXPECT_EQ(searched, 1);
  EXPECT_THAT(candidate(answer, "V100-32GB")->reason, HasSubstr("no better than"));
}

TEST(Provisioner, EachGpuModelsLeastNumberIsFoundOnRequest) {
  const std::vector<AvailableGpu> gpus = four_models();
  Json object = job_object(400, 2 * kGiBOfRows);
  const crds::TrainingJob job = decode(object);
  const Provision answer = estimator::provision({.job = &job, .gpus = &gpus, .every_gpu_model = true});
  ASSERT_TRUE(answer.decided()) << answer.reason;
  EXPECT_EQ(answer.decision->trainers, provision(object, gpus).decision->trainers);
  EXPECT_EQ(answer.alternatives.front().gpu_model, answer.decision->gpu_model);
  ASSERT_EQ(answer.alternatives.size(), 4U);
  for (const Alternative& one : answer.alternatives) {
    SCOPED_TRACE(one.gpu_model);
    object["spec"]["provisioning"]["gpuModels"] = parse("[\"" + one.gpu_model + "\"]");
    const Provision alone = provision(object, gpus);
    ASSERT_TRUE(alone.decided());
    EXPECT_TRUE(one.fits);
    EXPECT_TRUE(one.searched);
    EXPECT_EQ(one.trainers, alone.decision->trainers);
    EXPECT_DOUBLE_EQ(one.iteration_seconds, alone.decision->throughput->iteration.seconds);
    EXPECT_GT(one.cost, 0);
  }
}

TEST(Provisioner, AGpuModelWhoseLeastNumberTakesTooLongLeavesTheDecision) {
  const std::vector<AvailableGpu> gpus = four_models();
  const crds::TrainingJob job = decode(job_object(400, 2 * kGiBOfRows));
  Budget counted;
  ASSERT_TRUE(estimator::provision({.job = &job, .gpus = &gpus, .budget = &counted}).decided());
  Budget scant({.work = counted.work_done() + 10});
  const Provision answer =
      estimator::provision({.job = &job, .gpus = &gpus, .budget = &scant, .every_gpu_model = true});
  ASSERT_TRUE(answer.decided()) << answer.reason;
  EXPECT_EQ(answer.decision->gpu_model, "A100-80GB");
  EXPECT_THAT(candidate(answer, "V100-32GB")->reason, HasSubstr("its least number was not found: "));
  EXPECT_THAT(answer.warnings, Not(Contains(HasSubstr("not all GPU models were compared"))));
}

TEST(Provisioner, TheTemplatesOwnSelectorsLimitTheChoice) {
  Json object = job_object(100, kGiBOfRows);
  object["spec"]["template"]["spec"]["nodeSelector"]["nvidia.com/gpu.product"] = "Tesla-V100-SXM2-32GB";
  EXPECT_EQ(provision(object, four_models()).decision->gpu_model, "V100-32GB");
  object["spec"]["template"]["spec"]["nodeSelector"]["nvidia.com/gpu.product"] = "Tesla-K80";
  EXPECT_EQ(provision(object, four_models()).event_reason, "NoGPUInCluster");
  object["spec"]["template"]["spec"].removeMember("nodeSelector");
  object["spec"]["template"]["spec"]["nodeSelector"]["nvidia.com/gpu.family"] = "hopper";
  EXPECT_EQ(provision(object, four_models()).decision->gpu_model, "H100-80GB");
  object["spec"]["template"]["spec"]["nodeSelector"] = parse(R"({"cloud.google.com/gke-accelerator":
    "nvidia-tesla-a100", "zone": "a"})");
  EXPECT_EQ(provision(object, four_models()).decision->gpu_model, "A100-40GB");
}

TEST(Provisioner, TheTemplatesAffinityLimitsTheChoice) {
  Json object = job_object(100, kGiBOfRows);
  Json& terms = object["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
                      ["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
  terms = parse(R"([{"matchExpressions": [
    {"key": "nvidia.com/gpu.product", "operator": "NotIn", "values": ["NVIDIA-A100-SXM4-80GB"]},
    {"key": "zone", "operator": "In", "values": ["a"]}]}])");
  EXPECT_EQ(provision(object, four_models()).decision->gpu_model, "H100-80GB");
  terms = parse(R"([
    {"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "In", "values": ["Tesla-V100-SXM2-32GB"]}]},
    {"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-A100-SXM4-40GB"]}]}
  ])");
  EXPECT_EQ(provision(object, four_models()).decision->gpu_model, "A100-40GB");
  terms.append(parse(R"({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]})"));
  EXPECT_EQ(provision(object, four_models()).decision->gpu_model, "A100-80GB");
}

TEST(Provisioner, OnlyTheSpellingsThatTheTemplateAllowsAreUsed) {
  Json object = job_object(1, kGiBOfRows);
  object["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
        ["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"] =
            parse(R"([{"matchExpressions": [
    {"key": "nvidia.com/gpu.product", "operator": "NotIn", "values": ["NVIDIA-A100-80GB-PCIe"]}]}])");
  const Provision answer = provision(object, {available("A100-80GB", 8, 8, 2)});
  ASSERT_TRUE(answer.decided());
  EXPECT_THAT(answer.decision->product_labels, ElementsAre("NVIDIA-A100-SXM4-80GB"));
}

// A V100 and a K80 compute BF16 in FP32, and have no FlashAttention.
TEST(Provisioner, GivesNoCardThatCannotRunTheJob) {
  Json object = job_object(2, 1'000'000, 8);
  object["spec"]["model"] = parse(R"({"family": "small", "transformer": {
      "layers": 2, "hidden": 256, "heads": 4, "ffn": 1024, "vocab": 1000, "seqLen": 128, "attention": "Flash"}})");
  object["spec"]["training"]["precision"] = "BF16";
  object["spec"]["training"]["batchSizePerTrainer"] = 1;
  EXPECT_EQ(provision(object, {available("V100-32GB", 8), available("A100-80GB", 8)}).decision->gpu_model,
            "A100-80GB");
  Provision answer = provision(object, {available("K80", 8)});
  EXPECT_EQ(answer.event_reason, "NoFittingGPU");
  EXPECT_THAT(answer.reason, HasSubstr("attention Flash needs FlashAttention 2 (8.0 or later)"));
  object["spec"]["model"]["transformer"]["attention"] = "SDPA";
  answer = provision(object, {available("K80", 8)});
  EXPECT_THAT(answer.reason, HasSubstr("precision BF16 needs BF16 (native from 8.0 on)"));
  EXPECT_THAT(answer.reason, Not(HasSubstr("largest tensor"))) << "memory is not what excludes it";
  object["spec"]["provisioning"]["allowEmulation"] = true;
  answer = provision(object, {available("K80", 8)});
  ASSERT_TRUE(answer.decided()) << answer.reason;
  EXPECT_EQ(answer.decision->gpu_model, "K80");
}

TEST(Provisioner, WarnsOfNodesWithAnotherCpu) {
  Json object = job_object(2, 1'000'000, 8);
  AvailableGpu grace = available("GH200", 8);
  grace.cpu_architectures = {"arm64"};
  EXPECT_THAT(provision(object, {grace}).warnings, Contains(HasSubstr("nodes with GH200 are arm64")));
  object["spec"]["template"]["spec"]["nodeSelector"]["kubernetes.io/arch"] = "arm64";
  EXPECT_THAT(provision(object, {grace}).warnings, ::testing::Not(Contains(HasSubstr("are arm64"))));
}

TEST(Provisioner, OptOutsAreObeyed) {
  Json object = job_object(400, 2 * kGiBOfRows);
  object["metadata"]["annotations"]["plimsoll.dev/provisioning"] = "disabled";
  Provision answer = provision(object, four_models());
  EXPECT_FALSE(answer.decided());
  EXPECT_EQ(answer.event_reason, "Disabled");
  EXPECT_THAT(answer.warnings, IsEmpty());

  object = job_object(400, 2 * kGiBOfRows);
  object["spec"]["provisioning"]["mode"] = "Off";
  answer = provision(object, four_models());
  ASSERT_TRUE(answer.decided());
  EXPECT_EQ(answer.event_reason, "Recommended");
}

TEST(Provisioner, WhatCannotBeEstimatedKeepsTheUsersValues) {
  Json object = job_object(1, kGiBOfRows);
  object["spec"]["model"] = parse(R"({"graph": {"configMapKeyRef": {"name": "cm", "key": "k"}}})");
  Provision answer = provision(object, four_models());
  EXPECT_FALSE(answer.decided());
  EXPECT_EQ(answer.event_reason, "ModelUnknown");
  EXPECT_THAT(answer.warnings, Contains(HasSubstr("keeps its 128 trainers")));

  object = job_object(1, kGiBOfRows);
  object["spec"]["model"]["dlrm"].removeMember("tables");
  object["spec"]["model"]["dlrm"]["tablesFrom"] = parse(R"({"configMapKeyRef": {"name": "cm", "key": "k"}})");
  answer = provision(object, four_models());
  EXPECT_EQ(answer.event_reason, "ModelUnknown");
  EXPECT_THAT(answer.reason, HasSubstr("cm"));
}

// A transformer that is sharded takes fewer bytes on more trainers: the fewest that hold it, in whole
// replicas.
TEST(Provisioner, AShardedTransformerTakesTheFewestTrainersThatHoldIt) {
  Json object = job_object(1, kGiBOfRows, 64);
  object["spec"]["model"] = parse(R"({"transformer": {"layers": 24, "hidden": 4096, "heads": 32, "kvHeads": 8,
      "ffn": 14336, "vocab": 128256, "seqLen": 1024}})");
  object["spec"]["training"] =
      parse(R"({"batchSizePerTrainer": 1, "precision": "BF16Mixed", "optimizer": "AdamW",
      "activationCheckpointing": "Full", "parallelism": {"strategy": "FSDP2"}})");
  object["spec"]["provisioning"]["resizeDataParallel"] = true;
  const Cluster one = {available("A100-40GB", 64)};
  const Provision sharded = provision(object, one);
  ASSERT_TRUE(sharded.decided()) << sharded.reason;
  const std::int64_t found = sharded.decision->trainers;
  EXPECT_GT(found, 1);
  EXPECT_LT(found, 64);
  const Bytes memory = one.front().model.memory;
  const Bytes usable = memory - Bytes::ceil(0.05 * static_cast<double>(memory.count));  // the headroom
  for (const std::int64_t trainers : {found - 1, found}) {
    crds::TrainingJob job = decode(object);
    const Result<estimator::Estimate> estimate = estimator::estimate_memory({.model = &job.spec.model,
                                                                             .training = &job.spec.training,
                                                                             .gpu = &one.front().model,
                                                                             .trainers = trainers,
                                                                             .capacity = usable});
    ASSERT_TRUE(estimate.ok());
    EXPECT_EQ(estimate->peak.upper_bound <= usable, trainers == found) << trainers;
  }

  object["spec"]["training"]["parallelism"]["tensor"] = 8;
  const Provision split = provision(object, one);
  ASSERT_TRUE(split.decided()) << split.reason;
  EXPECT_EQ(split.decision->trainers % 8, 0) << "whole replicas";

  object["spec"]["training"]["parallelism"] = parse(R"({"strategy": "DDP"})");
  const Provision replicated = provision(object, one);
  EXPECT_FALSE(replicated.decided());
  EXPECT_EQ(replicated.event_reason, "NoFittingGPU");
}

// Fewer data-parallel replicas would train with another global batch: BERT on 8 GPUs became BERT on 1.
TEST(Provisioner, KeepsTheRequestedReplicasOfAModelWithoutTables) {
  Json object = job_object(1, kGiBOfRows, 8);
  object["spec"]["model"] = parse(R"({"transformer": {"layers": 2, "hidden": 1024, "heads": 16, "ffn": 4096,
      "vocab": 30522, "seqLen": 128}})");
  object["spec"]["training"] = parse(R"({"batchSizePerTrainer": 4, "parallelism": {"strategy": "DDP"}})");
  const Provision kept = provision(object, four_models());
  ASSERT_TRUE(kept.decided()) << kept.reason;
  EXPECT_EQ(kept.decision->trainers, 8);
  EXPECT_THAT(kept.warnings, Contains(HasSubstr("1 would hold the job; the global batch is kept, unless "
                                                "provisioning.resizeDataParallel is true")));
  EXPECT_THAT(kept.reason, Not(HasSubstr("global batch is")));

  object["spec"]["provisioning"]["resizeDataParallel"] = true;
  const Provision resized = provision(object, four_models());
  ASSERT_TRUE(resized.decided()) << resized.reason;
  EXPECT_EQ(resized.decision->trainers, 1);
  EXPECT_THAT(resized.reason, HasSubstr("the global batch is 4 samples instead of 32"));
}

// Whatever the number of trainers, an optimizer step takes the same samples; where a share does not fit, it is taken in
// parts.
TEST(Provisioner, AGlobalBatchIsKeptAndSharedByTheTrainers) {
  Json object = job_object(1, kGiBOfRows, 8);
  object["spec"]["model"] = parse(R"({"transformer": {"layers": 12, "hidden": 1024, "heads": 16, "ffn": 4096,
      "vocab": 30522, "seqLen": 512}})");
  object["spec"]["training"] = parse(R"({"globalBatchSize": 768, "parallelism": {"strategy": "DDP"}})");
  const Cluster one = {available("A100-40GB", 64)};
  const Provision whole = provision(object, one);
  ASSERT_TRUE(whole.decided()) << whole.reason;
  const std::int64_t trainers = whole.decision->trainers;
  EXPECT_GT(trainers, 8);
  EXPECT_EQ(768 % trainers, 0);
  EXPECT_EQ(whole.decision->batch, (crds::BatchSplit{768 / trainers, 1}));
  EXPECT_THAT(whole.reason,
              HasSubstr("each replica takes " + std::to_string(768 / trainers) + " of the 768 samples"));

  object["spec"]["training"]["maxGradientAccumulation"] = 16;
  const Provision in_parts = provision(object, one);
  ASSERT_TRUE(in_parts.decided()) << in_parts.reason;
  EXPECT_LT(in_parts.decision->trainers, trainers);
  EXPECT_GT(in_parts.decision->batch.accumulation, 1);
  EXPECT_EQ(in_parts.decision->batch.batch_size * in_parts.decision->trainers, 768);

  object["spec"]["training"]["globalBatchSize"] = 7;
  object["spec"]["provisioning"]["minTrainers"] = 8;
  const Provision none = provision(object, one);
  EXPECT_FALSE(none.decided());
  EXPECT_THAT(none.reason,
              HasSubstr("training.globalBatchSize 7 cannot be divided among any number of trainers from 8"));
  EXPECT_THAT(none.reason, HasSubstr("in whole nodes of 8; 8 could be"));
  object["spec"]["training"]["globalBatchSize"] = 100;
  object["spec"]["provisioning"]["maxTrainers"] = 8;
  EXPECT_THAT(provision(object, one).reason, HasSubstr("; 96 or 104 could be"));
  object["spec"]["training"]["globalBatchSize"] = 104;
  EXPECT_THAT(provision(object, one).reason, Not(HasSubstr("cannot be divided")));
}

TEST(Provisioner, ARequestedGpuModelThatIsNotThereIsWarnedOf) {
  Json object = job_object(100, kGiBOfRows);
  object["spec"]["trainers"]["gpuModel"] = "A100-80";
  const Provision answer = provision(object, four_models());
  ASSERT_TRUE(answer.decided());
  EXPECT_THAT(answer.warnings,
              Contains(HasSubstr("spec.trainers.gpuModel: no node has a GPU called \"A100-80\"; did you mean "
                                 "A100-80GB?; the cluster has A100-40GB, ")));
  object["spec"]["trainers"]["gpuModel"] = "a100-80gb";  // in any case
  EXPECT_THAT(provision(object, four_models()).warnings, Not(Contains(HasSubstr("no node has"))));
}

TEST(Provisioner, OfModelsThatDoNotFitTheNearestIsNamed) {
  Json object = job_object(1, kGiBOfRows, 8);
  object["spec"]["model"] = parse(R"({"transformer": {"layers": 80, "hidden": 8192, "heads": 64, "kvHeads": 8,
      "ffn": 28672, "vocab": 128256, "seqLen": 4096, "attention": "SDPA"}})");
  object["spec"]["training"] =
      parse(R"({"batchSizePerTrainer": 1, "precision": "BF16Mixed", "parallelism": {"strategy": "DDP"}})");
  const Provision answer = provision(object, four_models());
  ASSERT_FALSE(answer.decided());
  EXPECT_EQ(answer.alternatives.front().gpu_model, "A100-80GB");
  EXPECT_EQ(answer.alternatives.back().gpu_model, "V100-32GB") << "it computes no BF16";
}

TEST(Provisioner, AGlobalBatchOfAModelWithTablesIsShared) {
  Json object = job_object(100, kGiBOfRows, 64);
  object["spec"]["training"].removeMember("batchSizePerTrainer");
  object["spec"]["training"]["globalBatchSize"] = 24'576;
  const Provision shared = provision(object, {available("A100-40GB", 64)});
  ASSERT_TRUE(shared.decided()) << shared.reason;
  EXPECT_EQ(shared.decision->batch.batch_size * shared.decision->trainers, 24'576);
  EXPECT_FALSE(shared.decision->plan.placements.empty());
}

// "64 requested" of a model that 16 hold; where 8 are requested, and too few, more are given.
TEST(Provisioner, AShardedModelIsRaisedButNotCut) {
  Json object = job_object(1, kGiBOfRows, 64);
  object["spec"]["model"] = parse(R"({"transformer": {"layers": 24, "hidden": 4096, "heads": 32, "kvHeads": 8,
      "ffn": 14336, "vocab": 128256, "seqLen": 1024}})");
  object["spec"]["training"] =
      parse(R"({"batchSizePerTrainer": 1, "precision": "BF16Mixed", "optimizer": "AdamW",
      "activationCheckpointing": "Full", "parallelism": {"strategy": "FSDP2"}})");
  const Cluster one = {available("A100-40GB", 64)};
  EXPECT_EQ(provision(object, one).decision->trainers, 64);
  object["spec"]["trainers"]["replicas"] = 1;
  const Provision raised = provision(object, one);
  ASSERT_TRUE(raised.decided()) << raised.reason;
  EXPECT_GT(raised.decision->trainers, 1);
  EXPECT_LT(raised.decision->trainers, 64);
  object["spec"]["trainers"]["replicas"] = 64;
  object["spec"]["provisioning"]["maxTrainers"] = 32;
  EXPECT_EQ(provision(object, one).decision->trainers, 32) << "maxTrainers is the user's own limit";
}

TEST(Provisioner, AModelWithoutTablesTakesTheLeastThatHoldsItsDensePart) {
  crds::TrainingJob job = decode(job_object(1, kGiBOfRows, 16));
  job.spec.model.dlrm->tables.clear();
  job.spec.provisioning.min_trainers = 2;
  job.spec.provisioning.resize_data_parallel = true;
  Provision answer = provision(job, four_models());
  ASSERT_TRUE(answer.decided());
  EXPECT_EQ(answer.decision->trainers, 2);
  EXPECT_TRUE(answer.decision->plan.placements.empty());

  job.spec.model.dlrm->top_mlp = {1'000'000, 100'000, 1};  // 373 GiB of weights, replicated
  answer = provision(job, four_models());
  EXPECT_FALSE(answer.decided());
  EXPECT_THAT(answer.reason, HasSubstr("a trainer takes at least"));
}

TEST(Provisioner, AnEmptyClusterAndAPassedDeadlineAreToldApart) {
  const crds::TrainingJob job = decode(job_object(400, 2 * kGiBOfRows));
  EXPECT_EQ(provision(job, {}).event_reason, "NoGPUInCluster");
  const Cluster cluster = four_models();
  Budget budget({.deadline = std::chrono::steady_clock::now() - std::chrono::seconds(1)});
  const Provision late = estimator::provision({.job = &job, .gpus = &cluster, .budget = &budget});
  EXPECT_FALSE(late.decided());
  EXPECT_EQ(late.event_reason, "DeadlineExceeded");
  EXPECT_THAT(late.warnings, Contains(HasSubstr("keeps its 128 trainers")));
}

TEST(Provisioner, WhatWasLearnedOfTheFamilyCounts) {
  const crds::TrainingJob job = decode(job_object(270, 2 * kGiBOfRows));
  const Cluster cluster = {available("A100-80GB", 64)};
  crds::MemoryProfile profile;
  profile.family = "ads";
  profile.bounds = {{.gpu_model = "",
                     .cuda_context = {},
                     .communication = 30_GiB,
                     .workspace = {},
                     .convolution_workspace = {},
                     .startup = {},
                     .shortfall = {},
                     .peak_correction = {}}};
  const Provision before = provision(job, cluster);
  const Provision after = estimator::provision({.job = &job, .gpus = &cluster, .profile = &profile});
  ASSERT_TRUE(before.decided() && after.decided());
  EXPECT_GT(after.decision->trainers, before.decision->trainers);
}

TEST(Provisioner, WarnsWhenTheGpusAreNotFreeNow) {
  AvailableGpu busy = available("A100-80GB", 64);
  busy.free_gpus = 3;
  EXPECT_THAT(provision(job_object(400, 2 * kGiBOfRows), {busy}).warnings, Contains(HasSubstr("only 3")));
}

TEST(Provisioner, WarningsStayWithinTheApiServersLimit) {
  Json object = job_object(400, 2 * kGiBOfRows);
  for (int i = 0; i < 8; ++i) {
    object["spec"]["provisioning"]["gpuModels"].append(std::string(55, 'x') + std::to_string(i));
  }
  const Provision answer = provision(object, four_models());
  EXPECT_GE(answer.warnings.size(), 8U);
  for (const std::string& warning : answer.warnings) {
    EXPECT_LE(warning.size(), 256U);
  }
}

TEST(Provisioner, TheAnswerIsTheSameEachTime) {
  const Json object = job_object(300, 3 * kGiBOfRows);
  const crds::TrainingJob job = decode(object);
  const Json first = to_json(job, provision(job, four_models()));
  Cluster reversed = four_models();
  std::reverse(reversed.begin(), reversed.end());
  EXPECT_EQ(write_json(first), write_json(to_json(job, provision(job, reversed))));
}

TEST(Provisioner, CountsOptimizerStateAsTheKernelsAllocateIt) {
  // A weight of two bytes has two states of four: ten bytes, of which torchrec's planner counts six.
  Json object = job_object(64, 40'000'000);
  object["spec"]["model"]["dlrm"]["tables"][0]["dtype"] = "BF16";
  object["spec"]["training"]["embeddingOptimizer"] = "Adam";
  const Provision answer = provision(object, {available("A100-80GB", 64)});
  ASSERT_TRUE(answer.decided()) << answer.reason;
  const double needed = 64.0 * 40e6 * 128 * 10;
  EXPECT_GE(static_cast<double>(answer.decision->trainers) * 80.0 * 1024 * 1024 * 1024, needed);
  double held = 0;
  for (const RankLoad& rank : answer.decision->plan.ranks) {
    held += static_cast<double>(rank.weights.count + rank.optimizer.count);
  }
  EXPECT_DOUBLE_EQ(held, needed);
}

// AMP, Findings 10 and 11: tables as large as each other, of which one is looked up far more often.
TEST(Provisioner, TrainersDifferByTheirLookups) {
  const auto decided = [](double pooling_factor) {
    Json object = job_object(1, 20'000'000);
    Json& tables = object["spec"]["model"]["dlrm"]["tables"];
    Json cold = tables[0];
    cold["name"] = "cold";
    cold["poolingFactor"] = "1";
    tables[0]["name"] = "hot";
    tables[0]["poolingFactor"] = std::to_string(static_cast<int>(pooling_factor));
    tables.append(cold);
    object["spec"]["training"]["batchSizePerTrainer"] = 8192;
    object["spec"]["provisioning"]["minTrainers"] = 2;
    const crds::TrainingJob job = decode(object);
    const Cluster cluster = {available("A100-80GB", 4)};
    Provision provision = estimator::provision({.job = &job, .gpus = &cluster});
    EXPECT_TRUE(provision.decided()) << provision.reason;
    const Json json = to_json(job, provision);
    EXPECT_EQ(static_cast<std::int64_t>(json["decision"]["ranks"].size()), provision.decision->trainers);
    return *std::move(provision.decision);
  };
  const Decision even = decided(1);
  const Decision hot = decided(400);
  ASSERT_EQ(hot.trainers, 2);
  const std::vector<TrainerLoad> loads = trainer_loads(hot.estimate, hot.plan);
  ASSERT_EQ(loads.size(), 2u);
  Bytes most, all_lookups;
  for (std::size_t rank = 0; rank < loads.size(); ++rank) {
    EXPECT_EQ(loads[rank].embeddings + loads[rank].lookups, hot.plan.ranks[rank].memory);
    most = std::max(most, loads[rank].allocated);
    all_lookups += loads[rank].lookups;
  }
  EXPECT_EQ(most, hot.estimate.peak.allocated) << "the fullest decides";
  // 400 indices of 8 bytes a sample of both trainers.
  EXPECT_GE(all_lookups, Bytes{400 * 8 * 8192 * 2});
  EXPECT_GT(hot.estimate.peak.upper_bound, even.estimate.peak.upper_bound);
}

}  // namespace
}  // namespace plimsoll::estimator
