// The examples that the README and the demo show, on the cluster they are written for.
#include <gmock/gmock.h>

#include <chrono>

#include "tests/checkout.h"
#include "tests/e2e/main_job.h"
#include "tests/testing/eventually.h"

namespace plimsoll::testing {
namespace {

class ExamplesTest : public MainJobTest {
 protected:
  void SetUp() override {
    MainJobTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) {
      return;
    }
    must({"create", "-f", PLIMSOLL_SOURCE_DIR "/examples/cluster.yaml"});
    ASSERT_NO_FATAL_FAILURE(start_operator());
    for (const char* model : {"a100-40gb", "a100-80gb", "h100-80gb", "v100-32gb"}) {
      ASSERT_NO_FATAL_FAILURE(wait_until_counted(model, 512));
    }
    start_webhook();
  }

  static std::string example(const std::string& name) {
    return PLIMSOLL_SOURCE_DIR "/examples/" + name + ".yaml";
  }
};

// Terabytes of tables, requested with 128 A100-80GB: given what they need, and one by every way to write it.
TEST_F(ExamplesTest, TerabyteModelsAreCutToWhatTheyNeed) {
  using Ways = std::vector<std::vector<std::string>>;
  const std::pair<std::string, Ways> models[] = {
      {"model-a", {{"apply", "-f"}, {"apply", "--server-side", "-f"}, {"create", "-f"}}},
      {"model-b", {{"apply", "-f"}}},
      {"model-c", {{"apply", "--server-side", "-f"}}}};
  for (const auto& [name, ways] : models) {
    SCOPED_TRACE(name);
    std::string first;
    for (const std::vector<std::string>& way : ways) {
      SCOPED_TRACE(way[1]);
      std::vector<std::string> arguments = way;
      arguments.push_back(example(name));
      const CommandResult written = must(arguments);
      EXPECT_THAT(written.errors, ::testing::Not(::testing::HasSubstr("keeps its trainers")));
      const Json object = job(name);
      EXPECT_GT(replicas_of(object), 0);
      EXPECT_LT(replicas_of(object), 128);
      EXPECT_EQ(decision_of(object)["trainers"].asInt64(), replicas_of(object));
      EXPECT_LE(decision_of(object)["upperBoundBytes"].asInt64(),
                decision_of(object)["capacityBytes"].asInt64());
      const std::string decision = annotation(object, "provisioning-decision");
      EXPECT_TRUE(first.empty() || decision == first)
          << "one job, one decision: " << first << " / " << decision;
      first = decision;
      must({"delete", "--ignore-not-found", "-f", example(name)});
    }
  }
}

TEST_F(ExamplesTest, EveryExampleIsDecided) {
  for (const char* name : {"dhen-ranking", "dlrm-dcnv2-mlperf", "guarded-training", "llama-3-8b",
                           "nvidia-synthetic-jumbo", "nvidia-synthetic-large", "nvidia-synthetic-medium",
                           "nvidia-synthetic-small", "nvidia-synthetic-tiny", "single-gpu"}) {
    SCOPED_TRACE(name);
    must({"apply", "-f", example(name)});
    EXPECT_FALSE(decision_of(job(name)).isNull());
  }
  EXPECT_EQ(replicas_of(job("single-gpu")), 1);
}

TEST_F(ExamplesTest, WhatTheClusterKnowsBetterCounts) {
  const auto upper_bound = [&] {
    must({"delete", "--ignore-not-found", "-f", example("single-gpu")});
    must({"apply", "-f", example("single-gpu")});
    return decision_of(job("single-gpu"))["upperBoundBytes"].asInt64();
  };
  const std::int64_t before = upper_bound();
  must({"apply", "--server-side", "--force-conflicts", "-f", example("cluster-knowledge/gpu-model")});
  must({"apply", "-f", example("cluster-knowledge/memory-profile")});
  EXPECT_TRUE(eventually("the webhook learns of both from its watches", upper_bound, ::testing::Ne(before)));
}

}  // namespace
}  // namespace plimsoll::testing
