// Training jobs from their creation to their end, through what goes wrong on the way.
#include <gmock/gmock.h>

#include "tests/e2e/training_stage.h"
#include "tests/testing/eventually.h"

namespace plimsoll::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;
using namespace std::chrono_literals;

class JobsThatRunTest : public TrainingTest {
 protected:
  void start(int nodes, int gpus = 8) {
    for (int i = 0; i < nodes; ++i) {
      add_node("a100-" + std::to_string(i), gpus);
    }
    ASSERT_NO_FATAL_FAILURE(start_operator());
    ASSERT_NO_FATAL_FAILURE(wait_for_gpus(nodes * gpus));
    ASSERT_NO_FATAL_FAILURE(start_webhook());
  }

  std::int64_t create(const TrainingJobManifest& manifest) {
    must({"create", "-f", "-"}, manifest.text());
    return replicas_of(live(manifest.name));
  }

  // How many trainers the job would be admitted with now.
  std::int64_t admitted(const TrainingJobManifest& manifest) const {
    const Result<Json> object =
        parse_json(must({"create", "--dry-run=server", "-o", "json", "-f", "-"}, manifest.text()).output);
    return object ? replicas_of(*object) : 0;
  }
};

std::string peak_of_70_gib() {
  return R"({"plimsoll":1,"stage":"peak","rank":0,"iteration":400,"torch":"2.15.0",)"
         R"("allocatedBytes":69793218560,"reservedBytes":72477573120,"deviceUsedBytes":75161927680,)"
         R"("capacityBytes":84987740160,"contextBytes":1342177280,"device":"NVIDIA A100-SXM4-80GB"})";
}

TEST_F(JobsThatRunTest, RunToSuccess) {
  ASSERT_NO_FATAL_FAILURE(start(2));
  const std::int64_t trainers =
      create({.name = "ads", .annotations = {{"run-for", "2s"}, {"message", peak_of_70_gib()}}});
  EXPECT_GT(trainers, 1);
  EXPECT_LT(trainers, 16);
  const Json running = wait_for("ads", [](const Json& job) { return is_true(job, "Running"); });
  EXPECT_TRUE(is_true(running, "Running")) << story("ads");
  // Its pods know what torchrun needs, and have the plan.
  const Json child = get("job", "ads-0");
  EXPECT_EQ(child["spec"]["completions"].asInt64(), trainers);
  EXPECT_THAT(get("configmap", "ads-0-plan")["data"]["plan.json"].asString(), HasSubstr("\"sharding\""));
  EXPECT_EQ(get("service", "ads-0")["spec"]["clusterIP"].asString(), "None");

  const Json job = wait_for_end("ads");
  EXPECT_TRUE(is_true(job, "Succeeded")) << story("ads");
  EXPECT_THAT(outcomes_of(job), ElementsAre("Succeeded"));
  EXPECT_EQ(attempts_of(job)[0]["trainers"].asInt64(), trainers);
  EXPECT_EQ(attempts_of(job)[0]["observedPeakBytes"].asInt64(), 75161927680) << story("ads");

  must({"delete", "tj", "ads"});
  EXPECT_TRUE(eventually(
      "the children are gone",
      [&] {
        return must({"get", "jobs,pods,services,configmaps", "-l", "plimsoll.dev/job-name=ads", "-o", "name"})
            .output;
      },
      ""));
}

TEST_F(JobsThatRunTest, GrowOnceAfterRunningOutOfMemoryAndTheFamilyLearns) {
  ASSERT_NO_FATAL_FAILURE(start(4));
  TrainingJobManifest first{.name = "first", .family = "ads"};
  const std::int64_t trainers = admitted(first);
  first.annotations = {{"fits-from-trainers", std::to_string(trainers + 1)},
                       {"run-for", "1s"},
                       {"failure-message", kOutOfMemoryText},
                       {"success-message", peak_of_70_gib()}};
  EXPECT_EQ(create(first), trainers);
  const Json job = wait_for_end("first");
  EXPECT_TRUE(is_true(job, "Succeeded")) << story("first");
  ASSERT_THAT(outcomes_of(job), ElementsAre("CUDAOutOfMemory", "Succeeded")) << story("first");
  const std::int64_t grown = attempts_of(job)[1]["trainers"].asInt64();
  EXPECT_GT(grown, trainers);
  EXPECT_EQ(replicas_of(job), grown);
  EXPECT_EQ(member(job, {"status", "restarts"}).asInt64(), 1);
  EXPECT_TRUE(is_true(job, "OOMDetected"));
  EXPECT_THAT(attempts_of(job)[0]["message"].asString(), HasSubstr("CUDA out of memory"));

  // Of the same family, as they would be written anew: right at once, as soon as it was learned.
  TrainingJobManifest next = first;
  next.name = "next";
  EXPECT_TRUE(eventually(
      "the family has learned", [&] { return admitted(next); }, ::testing::Gt(trainers)));
  const std::int64_t given = create(next);
  EXPECT_GT(given, trainers) << must({"get", "memoryprofiles", "-o", "yaml"}).output << operator_->log();
  const Json second = wait_for_end("next");
  EXPECT_THAT(outcomes_of(second), ElementsAre("Succeeded")) << story("next");
}

TEST_F(JobsThatRunTest, FailWithTheReasonWhenTheyMayNotGrow) {
  ASSERT_NO_FATAL_FAILURE(start(2));
  TrainingJobManifest manifest{.name = "ads"};
  const std::int64_t trainers = admitted(manifest);
  manifest.max_trainers = trainers;
  manifest.replicas = trainers;
  manifest.annotations = {{"outcome", "fail"}, {"run-for", "1s"}, {"message", kOutOfMemoryText}};
  EXPECT_EQ(create(manifest), trainers);
  const Json job = wait_for_end("ads");
  EXPECT_TRUE(is_true(job, "Failed")) << story("ads");
  EXPECT_THAT(outcomes_of(job), ElementsAre("CUDAOutOfMemory"));
  EXPECT_THAT(why(job, "Failed"), AllOf(StartsWith("MaxResourcesReached: "), HasSubstr("CUDA out of memory"),
                                        HasSubstr("maxTrainers")));
}

// Nothing in this cluster is free but one GPU; the scheduler makes room by taking one of the job's pods.
TEST_F(JobsThatRunTest, ComeBackUnchargedAfterTheSchedulerPreemptedAPod) {
  TrainingJobManifest manifest{.name = "ads"};
  ASSERT_NO_FATAL_FAILURE(start(1, 4));
  must({"apply", "-f", "-"},
       "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: urgent}\n"
       "value: 1000\n");
  manifest.annotations = {{"outcome-of-attempt-0", "run"}, {"run-for", "1s"}};
  const std::int64_t trainers = create(manifest);
  ASSERT_GT(trainers, 1);
  ASSERT_LE(trainers, 4);
  EXPECT_TRUE(is_true(wait_for("ads", [](const Json& job) { return is_true(job, "Running"); }), "Running"))
      << story("ads");
  must({"create", "-f", "-"},
       "apiVersion: v1\nkind: Pod\nmetadata: {name: urgent, namespace: default, annotations: "
       "{test.plimsoll.dev/run-for: 3s}}\nspec:\n  priorityClassName: urgent\n  restartPolicy: Never\n"
       "  containers:\n    - {name: main, image: none, resources: {limits: {nvidia.com/gpu: " +
           std::to_string(4 - trainers + 1) + "}}}\n");
  const Json job = wait_for_end("ads", 180s);
  EXPECT_TRUE(is_true(job, "Succeeded")) << story("ads");
  EXPECT_THAT(outcomes_of(job), ElementsAre("Preempted", "Succeeded")) << story("ads");
  EXPECT_EQ(attempts_of(job)[1]["trainers"].asInt64(), trainers);
  EXPECT_EQ(member(job, {"status", "restarts"}).asInt64(), 1);
  EXPECT_EQ(member(job, {"status", "restartsCountTowardsMax"}).asInt64(), 0);
  EXPECT_THAT(get("pod", "urgent")["status"]["phase"].asString(), "Succeeded");
}

}  // namespace
}  // namespace plimsoll::testing
