// What a whole history of failures leads to is in remediation_test.cc.
#include "remediation/next_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/estimator/provisioner_fixture.h"

namespace plimsoll::remediation {
namespace {

using crds::Attempt;
using crds::Outcome;
using plimsoll::testing::available;
using plimsoll::testing::Cluster;
using plimsoll::testing::job_object;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::int64_t kGiBOfRows = 2'097'152;  // rows of 128 FP32 columns in a GiB

// A job of 100 GiB of tables whose only attempt ran on 8 x A100-40GB.
class NextSizeTest : public ::testing::Test {
 protected:
  NextSizeTest() {
    object_["spec"]["trainers"]["gpuModel"] = "A100-40GB";
    attempts_.push_back({.gpu_model = "A100-40GB", .trainers = 8, .per_node = 8});
  }

  Result<NextSize> larger(Outcome outcome = Outcome::kCudaOutOfMemory, bool swap_training = true) {
    attempts_.back().outcome = outcome;
    job_ = plimsoll::testing::decode(object_);
    return larger_size(
        {.job = &job_, .gpus = &gpus_, .attempts = &attempts_, .swap_training = swap_training});
  }
  Result<NextSize> other() {
    attempts_.back().outcome = Outcome::kPreempted;
    job_ = plimsoll::testing::decode(object_);
    return size_on_other_model({.job = &job_, .gpus = &gpus_, .attempts = &attempts_});
  }
  // The spec.trainers that the patch makes.
  Json trainers(const NextSize& next) const {
    std::string why;
    const std::optional<Json> patched = plimsoll::testing::apply_patch(object_, next.patch, why);
    EXPECT_TRUE(patched) << why;
    return patched ? (*patched)["spec"]["trainers"] : Json();
  }

  Json object_ = job_object(100, kGiBOfRows, 8);
  Cluster gpus_ = {available("A100-40GB", 8), available("A100-80GB", 8)};
  std::vector<Attempt> attempts_;
  crds::TrainingJob job_;
};

TEST_F(NextSizeTest, ALargerSizeExceedsTheOneThatRanOut) {
  const Result<NextSize> next = larger();
  ASSERT_TRUE(next) << to_string(next.error());
  const Json made = trainers(*next);
  EXPECT_TRUE(made["replicas"].asInt64() > 8 || made["gpuModel"] == "A100-80GB") << write_json(made);
  EXPECT_THAT(next->text, StartsWith(made["replicas"].asString() + " x " + made["gpuModel"].asString()));
  EXPECT_THAT(next->text, HasSubstr("peak at most"));
  EXPECT_THAT(write_json(next->patch), HasSubstr("8 x A100-40GB ran out of memory"));
}

TEST_F(NextSizeTest, AfterAStartUpThatDidNotFitItIsALargerCardOrNothing) {
  attempts_.back().ended_in_startup = true;
  const Result<NextSize> next = larger();
  ASSERT_TRUE(next) << to_string(next.error());
  EXPECT_EQ(trainers(*next)["gpuModel"], "A100-80GB");
  gpus_.pop_back();
  const Result<NextSize> none = larger();
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("on the CPU or the meta device"));
}

TEST_F(NextSizeTest, AfterAShardingFailureThereAreMoreTrainers) {
  gpus_.pop_back();
  const Result<NextSize> next = larger(Outcome::kShardingFailure);
  ASSERT_TRUE(next) << to_string(next.error());
  EXPECT_GT(trainers(*next)["replicas"].asInt64(), 8);
  EXPECT_THAT(write_json(next->patch), HasSubstr("8 x A100-40GB could not be sharded"));
}

// Three hold 34 GiB of tables each. With 24 GiB more than a card has missing, six would not do either.
TEST_F(NextSizeTest, GrowsByOomMaxGrowthAtMost) {
  object_["spec"]["failurePolicy"]["oomMaxGrowth"] = 2;
  object_["spec"]["trainers"]["replicas"] = 3;
  attempts_.back().trainers = 3;
  gpus_ = {available("A100-40GB", 512)};
  attempts_.back().out_of_memory.needed = gpus_[0].model.memory + 24_GiB;
  const Result<NextSize> next = larger();
  ASSERT_TRUE(next) << to_string(next.error());
  EXPECT_EQ(trainers(*next)["replicas"].asInt64(), 6);
}

TEST_F(NextSizeTest, WithoutALargerSizeTheErrorSaysWhatBoundsIt) {
  object_["spec"]["provisioning"]["maxTrainers"] = 8;
  gpus_ = {available("A100-40GB", 8)};
  const Result<NextSize> next = larger();
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().code, ErrorCode::kUnfittable);
  EXPECT_THAT(next.error().message, HasSubstr("maxTrainers 8"));
  gpus_.clear();
  EXPECT_EQ(larger().error().code, ErrorCode::kUnfittable);
}

TEST_F(NextSizeTest, AnotherModelIsTakenWhereItsOwnIsInUse) {
  gpus_[0].free_gpus = 7;
  gpus_[1].free_gpus = 8;
  const Result<NextSize> next = other();
  ASSERT_TRUE(next) << to_string(next.error());
  EXPECT_EQ(trainers(*next)["gpuModel"].asString(), "A100-80GB");
  EXPECT_EQ(trainers(*next)["replicas"].asInt64(), 8);
  EXPECT_THAT(write_json(next->patch), HasSubstr("8 x A100-40GB were preempted"));
}

TEST_F(NextSizeTest, AModelWithoutRoomOrLeaveIsNotTaken) {
  gpus_[0].free_gpus = 8;
  EXPECT_THAT(other().error().message, HasSubstr("its own GPUs are free again"));
  gpus_[0].free_gpus = 7;
  gpus_[1].free_gpus = 7;
  Result<NextSize> next = other();
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().code, ErrorCode::kUnfittable);
  gpus_[1].free_gpus = 64;
  object_["spec"]["provisioning"]["gpuModels"].append("A100-40GB");
  next = other();
  ASSERT_FALSE(next);
  EXPECT_THAT(next.error().message, HasSubstr("no other allowed GPU model"));
}

// Llama 3 8B whole on each trainer; nothing is left but to train it through the host's memory.
class SwapAsTheLastResort : public NextSizeTest {
 protected:
  SwapAsTheLastResort() {
    object_["spec"]["model"] = plimsoll::testing::parse(
        R"({"family": "llm", "transformer": {"layers": 32, "hidden": 4096, "heads": 32, "kvHeads": 8, "ffn": 14336,
            "vocab": 128256, "seqLen": 2048}})");
    object_["spec"]["training"] = plimsoll::testing::parse(
        R"({"batchSizePerTrainer": 1, "precision": "BF16Mixed", "optimizer": "AdamW"})");
    object_["spec"]["provisioning"]["placement"] = "HBMOrSwap";
    gpus_ = {available("A100-80GB", 8)};
    gpus_[0].host_memory = 1024_GiB;
    attempts_.back() = {.gpu_model = "A100-80GB", .trainers = 8, .per_node = 8};
    attempts_.back().out_of_memory.needed = gpus_[0].model.memory + 1_GiB;
  }
};

TEST_F(SwapAsTheLastResort, AfterTheLargestSizeTheJobTrainsThroughTheHost) {
  const Result<NextSize> next = larger();
  ASSERT_TRUE(next) << to_string(next.error());
  EXPECT_THAT(next->text, HasSubstr("8 x A100-80GB, through host memory by a swap plan"));
  EXPECT_THAT(write_json(next->patch), HasSubstr("8 x A100-80GB ran out of memory"));
  EXPECT_FALSE(larger(Outcome::kCudaOutOfMemory, false).ok()) << "the feature is off";
  object_["spec"]["provisioning"]["placement"] = "HBM";
  EXPECT_FALSE(larger().ok());
}

// Of the decision in the patch's annotation.
std::int64_t upper_bound_in(const Json& patch) {
  for (const Json& operation : patch) {
    if (operation["path"] == "/metadata/annotations/plimsoll.dev~1provisioning-decision") {
      return (*parse_json(operation["value"].asString()))["upperBoundBytes"].asInt64();
    }
  }
  return -1;
}

TEST_F(SwapAsTheLastResort, APlanThatRanOutIsFollowedByOneThatTakesLess) {
  const Result<NextSize> first = larger();
  ASSERT_TRUE(first.ok());
  attempts_.push_back(attempts_.back());
  attempts_.back().swap_plan = true;
  attempts_.back().estimated = 15_GiB;
  attempts_.back().out_of_memory.needed.reset();
  const Result<NextSize> next = larger();
  ASSERT_TRUE(next) << to_string(next.error());
  EXPECT_THAT(next->text, HasSubstr("through host memory by a swap plan"));
  EXPECT_LT(upper_bound_in(next->patch), upper_bound_in(first->patch));
}

}  // namespace
}  // namespace plimsoll::remediation
