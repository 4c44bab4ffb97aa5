#include "controllers/attempt_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_EQ(file["peak"], made.estimate["peak"]);
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

}  // namespace
}  // namespace plimsoll::controllers
