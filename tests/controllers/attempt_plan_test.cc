#include "controllers/attempt_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "estimator/swap/plan_json.h"
#include "tests/estimator/provisioner_fixture.h"

namespace plimsoll::controllers {
namespace {

using plimsoll::testing::available;
using plimsoll::testing::decode;
using plimsoll::testing::job_object;
using plimsoll::testing::parse;

constexpr std::int64_t kGiBOfRows = 2'097'152;  // rows of 128 FP32 columns in a GiB

// A job of 100 GiB of tables, of which one attempt has 16 trainers.
class AttemptPlanTest : public ::testing::Test {
 protected:
  AttemptPlanTest() {
    cluster_.gpus = {available("A100-40GB", 8), available("A100-80GB", 8)};
    attempt_.gpu_model = "A100-40GB";
    attempt_.trainers = 16;
    attempt_.per_node = 8;
  }

  AttemptPlan plan(Budget* budget = nullptr) {
    return plan_attempt(decode(object_), attempt_, nullptr, cluster_, budget);
  }

  Json object_ = job_object(100, kGiBOfRows, 128);
  crds::Attempt attempt_;
  estimator::ClusterView cluster_;
};

TEST_F(AttemptPlanTest, IsOfTheAttemptsTrainersAndNotTheJobs) {
  const AttemptPlan made = plan();
  EXPECT_EQ(made.problem, "");
  EXPECT_EQ(made.reason, "EstimateSucceeded");
  EXPECT_EQ(made.estimate["gpuModel"].asString(), "A100-40GB");
  EXPECT_EQ(made.estimate["trainers"].asInt64(), 16);
  const Json file = parse(made.text);
  EXPECT_EQ(file["gpuModel"].asString(), "A100-40GB");
  EXPECT_EQ(file["trainers"].asInt64(), 16);
  EXPECT_EQ(file["perNode"].asInt64(), 8);
  EXPECT_EQ(file["batchSizePerTrainer"].asInt64(), 512);
  EXPECT_EQ(file["gradientAccumulation"].asInt64(), 1);
  EXPECT_EQ(file["globalBatchSize"].asInt64(), 16 * 512);
  EXPECT_EQ(file["peak"], made.estimate["peak"]);
}

// What remediation goes to where the host's memory runs out.
TEST_F(AttemptPlanTest, PredictsTheHostMemoryOfAPodWhoseTrainersEachLoadTheModel) {
  const Bytes of_all = *plan().predicted_host_memory;
  EXPECT_GE(of_all, 32_GiB) << "8 processes";
  EXPECT_EQ(of_all.count % (1_GiB).count, 0);
  object_["spec"]["training"]["checkpointLoading"] = "EveryRank";
  EXPECT_EQ(*plan().predicted_host_memory, of_all) << "what Auto is taken for";
  object_["spec"]["training"]["checkpointLoading"] = "None";
  EXPECT_EQ(*plan().predicted_host_memory, 32_GiB);
}

TEST_F(AttemptPlanTest, HasTheThroughputBesideThatOfTheRequested) {
  const Json throughput = plan().throughput;
  EXPECT_NE(text_member(throughput, {"iterationSeconds"}), "");
  EXPECT_NE(text_member(throughput, {"samplesPerSecond"}),
            text_member(throughput, {"requested", "samplesPerSecond"}));
}

// An attempt has its size already, whatever was required of the decision.
TEST_F(AttemptPlanTest, TheRequiredThroughputDoesNotConcernIt) {
  object_["spec"]["provisioning"]["minThroughput"] = "100%";
  EXPECT_EQ(plan().reason, "EstimateSucceeded");
}

TEST_F(AttemptPlanTest, HasTheShareOfAGlobalBatch) {
  Json& training = object_["spec"]["training"];
  training.removeMember("batchSizePerTrainer");
  training["globalBatchSize"] = 1024;
  training["maxGradientAccumulation"] = 8;
  EXPECT_EQ(plan().batch, (crds::BatchSplit{64, 1}));
  attempt_.batch_size = 64;  // as it began, whatever would be decided now
  attempt_.accumulation = 4;
  const AttemptPlan begun = plan();
  EXPECT_EQ(begun.batch, (crds::BatchSplit{64, 4}));
  EXPECT_EQ(parse(begun.text)["globalBatchSize"].asInt64(), 1024);
  EXPECT_EQ(parse(begun.text)["gradientAccumulation"].asInt64(), 4);
  attempt_.batch_size = 0;
  training["globalBatchSize"] = 1000;
  EXPECT_EQ(plan().batch.batch_size, 0) << "16 trainers cannot divide it";
}

// 100 GiB of tables on 16 trainers are 6.25 GiB on the fullest at the least.
TEST_F(AttemptPlanTest, ThePeakBoundsTheTables) {
  const AttemptPlan sixteen = plan();
  ASSERT_TRUE(sixteen.upper_bound);
  EXPECT_GE(*sixteen.upper_bound, Bytes{(100_GiB).count / 16});
  EXPECT_LE(*sixteen.upper_bound, 40_GiB);
  attempt_.trainers = 8;
  EXPECT_GT(*plan().upper_bound, *sixteen.upper_bound);
}

TEST_F(AttemptPlanTest, EveryTableHasItsPlace) {
  const Json file = parse(plan().text);
  EXPECT_TRUE(file["sharding"].isObject()) << write_json(file);
  EXPECT_EQ(file["torchrec"]["embeddings"].size(), 100U) << "one entry a table";
}

TEST_F(AttemptPlanTest, AModelWithoutTablesHasNoSharding) {
  object_["spec"]["model"] =
      parse(R"({"family": "llm", "transformer": {"layers": 2, "hidden": 1024, "heads": 8,
                                       "ffn": 4096, "vocab": 32000, "seqLen": 512}})");
  object_["spec"]["training"]["batchSizePerTrainer"] = 4;
  const AttemptPlan made = plan();
  EXPECT_EQ(made.problem, "");
  const Json file = parse(made.text);
  EXPECT_TRUE(file.isMember("peak"));
  EXPECT_FALSE(file.isMember("sharding"));
  EXPECT_FALSE(file.isMember("torchrec"));
}

TEST_F(AttemptPlanTest, EqualInputsGiveEqualPlans) {
  EXPECT_EQ(plan().text, plan().text);
  const std::string before = plan().text;
  object_["metadata"]["annotations"]["unrelated"] = "x";
  EXPECT_EQ(plan().text, before);
}

TEST_F(AttemptPlanTest, AnAttemptThatDoesNotFitSaysSoAndKeepsItsSize) {
  attempt_.trainers = 1;
  const AttemptPlan made = plan();
  EXPECT_NE(made.problem, "");
  EXPECT_NE(made.reason, "EstimateSucceeded");
  EXPECT_NE(made.reason, "");
  EXPECT_TRUE(made.estimate.isNull());
  EXPECT_EQ(made.upper_bound, std::nullopt);
  const Json file = parse(made.text);
  EXPECT_EQ(file["trainers"].asInt64(), 1);
  EXPECT_FALSE(file.isMember("peak"));
}

TEST_F(AttemptPlanTest, ABudgetThatIsUsedUpLeavesThePlanOut) {
  Budget budget({.deadline = std::chrono::steady_clock::now() - std::chrono::seconds(1)});
  const AttemptPlan made = plan(&budget);
  EXPECT_NE(made.problem, "");
  EXPECT_FALSE(parse(made.text).isMember("sharding"));
  EXPECT_EQ(parse(made.text)["trainers"].asInt64(), 16);
}

// Llama 3 8B whole on each trainer, on a node of eight with a terabyte.
class SwapPlanTest : public AttemptPlanTest {
 protected:
  SwapPlanTest() {
    object_["spec"]["model"] = parse(
        R"({"family": "llm", "transformer": {"layers": 32, "hidden": 4096, "heads": 32, "kvHeads": 8, "ffn": 14336,
            "vocab": 128256, "seqLen": 2048}})");
    object_["spec"]["training"] =
        parse(R"({"batchSizePerTrainer": 2, "precision": "BF16Mixed", "optimizer": "AdamW"})");
    object_["spec"]["provisioning"]["placement"] = "HBMOrSwap";
    object_["spec"]["trainers"]["replicas"] = 4;
    attempt_ = {.gpu_model = "A100-80GB", .trainers = 4, .per_node = 4};
    for (estimator::AvailableGpu& gpu : cluster_.gpus) {
      gpu.host_memory = 1024_GiB;
    }
  }
};

TEST_F(SwapPlanTest, IsThePlanOfTheDecision) {
  const AttemptPlan made = plan();
  EXPECT_EQ(made.problem, "");
  const Json swap = parse(made.swap_text);
  EXPECT_EQ(swap["gpus"].asInt64(), 4);
  EXPECT_EQ(swap["batchSize"].asInt64(), 8);
  EXPECT_EQ(swap["layers"].asInt64(), 34);
  EXPECT_EQ(made.swap["mode"], swap["mode"]);
  EXPECT_NE(text_member(made.swap, {"slowdown"}), "");
  EXPECT_GT(made.host_memory, 29_GiB)
      << "the model in fp32; its layers stay on the GPUs, with their optimizer";
  EXPECT_EQ(made.batch, (crds::BatchSplit{.batch_size = 8, .accumulation = 1}));
  EXPECT_EQ(made.global_batch, 8);
  EXPECT_EQ(parse(made.text)["globalBatchSize"].asInt64(), 8);
  EXPECT_LE(*made.upper_bound, 80_GiB);
}

TEST_F(SwapPlanTest, LeavesMoreFreeAfterAnAttemptThatRanOut) {
  crds::Attempt earlier = attempt_;
  earlier.outcome = crds::Outcome::kCudaOutOfMemory;
  earlier.swap_plan = true;
  earlier.estimated = 20_GiB;
  earlier.out_of_memory.needed = 85_GiB;
  const AttemptPlan before = plan();
  const AttemptPlan after = plan_attempt(decode(object_), attempt_, nullptr, cluster_, nullptr, {earlier});
  EXPECT_LT(parse(after.swap_text)["deviceBytes"].asInt64(),
            parse(before.swap_text)["deviceBytes"].asInt64());
}

// Without requested trainers, the batch is that of as many as there are GPUs: in the decision and in the attempt alike.
TEST_F(SwapPlanTest, HasTheBatchOfTheDecisionWhereNoTrainersAreRequested) {
  object_["spec"]["trainers"].removeMember("replicas");
  cluster_.gpus = {cluster_.gpus.back()};
  const crds::TrainingJob job = decode(object_);
  const estimator::Provision decided = estimator::provision({.job = &job, .gpus = &cluster_.gpus});
  ASSERT_TRUE(decided.decided()) << decided.reason;
  std::string why;
  const std::optional<Json> admitted =
      plimsoll::testing::apply_patch(object_, estimator::patch_for(job, decided), why);
  ASSERT_TRUE(admitted) << why;
  object_ = *admitted;
  attempt_ = {.gpu_model = decided.decision->gpu_model,
              .trainers = decided.decision->trainers,
              .per_node = decided.decision->per_node};
  const AttemptPlan made = plan();
  EXPECT_EQ(made.batch, decided.decision->batch);
  EXPECT_EQ(made.global_batch, 16);
  EXPECT_EQ(parse(made.swap_text)["packs"],
            estimator::to_json(decided.decision->swap->planned.plan, 34).take()["packs"]);
}

// 400 GiB of tables on a node of eight A100-40GB: those that are seldom looked up are on the host.
TEST_F(AttemptPlanTest, KeepsTablesOnTheHostWhereTheDecisionDid) {
  object_ = job_object(400, kGiBOfRows, 8);
  object_["spec"]["model"]["dlrm"]["tables"][0]["lookupFrequency"] = "0.01";
  object_["spec"]["provisioning"]["placement"] = "HBMOrSwap";
  cluster_.gpus = {available("A100-40GB", 1)};
  cluster_.gpus[0].host_memory = 1024_GiB;
  attempt_.trainers = 8;
  const AttemptPlan made = plan();
  EXPECT_EQ(made.problem, "");
  EXPECT_GT(made.host_memory, 100_GiB);
  EXPECT_TRUE(made.swap.isNull());
  EXPECT_NE(made.text.find("uvm"), std::string::npos) << "of torchrec's kernels";
}

TEST_F(SwapPlanTest, AJobThatFitsHasNone) {
  object_["spec"]["training"]["parallelism"]["strategy"] = "FSDP2";
  const AttemptPlan made = plan();
  EXPECT_EQ(made.swap_text, "");
  EXPECT_TRUE(made.swap.isNull());
  EXPECT_EQ(made.host_memory, Bytes{});
}

}  // namespace
}  // namespace plimsoll::controllers
