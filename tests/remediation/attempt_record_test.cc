#include "remediation/attempt_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/yaml.h"

namespace plimsoll::remediation {
namespace {

using crds::Attempt;
using crds::Outcome;
using ::testing::HasSubstr;

constexpr const char* kNow = "2026-11-21T08:30:00Z";

Json yaml(const std::string& text) {
  return parse_yaml_documents(text)->front();
}

Json failed_job(const std::string& reason, const std::string& message) {
  return yaml(
      "{status: {conditions: [{type: FailureTarget, status: 'True'}, {type: Failed, status: 'True', "
      "reason: " +
      reason + ", message: '" + message + "'}]}}");
}

Json failed_pod(const std::string& name, int exit_code, const std::string& message) {
  return yaml(
      "{metadata: {name: " + name + ", uid: u-" + name +
      "}, status: {phase: Failed, containerStatuses: [{name: trainer, state: {terminated: {exitCode: " +
      std::to_string(exit_code) + ", reason: Error, message: '" + message + "'}}}]}}");
}

Attempt recorded(const Json& job, const std::vector<Json>& pods) {
  Attempt attempt;
  record_end(attempt, job, pods, kNow);
  EXPECT_EQ(attempt.completion_time, kNow);
  return attempt;
}

TEST(JobEnd, IsWhatItsConditionsSay) {
  EXPECT_EQ(end_of(yaml("{status: {active: 1}}")), JobEnd::kNone);
  EXPECT_EQ(end_of(yaml("{status: {conditions: [{type: Suspended, status: 'True'}]}}")), JobEnd::kNone);
  EXPECT_EQ(end_of(yaml("{status: {conditions: [{type: Failed, status: 'False'}]}}")), JobEnd::kNone);
  EXPECT_EQ(end_of(yaml("{status: {conditions: [{type: Complete, status: 'True'}]}}")), JobEnd::kComplete);
  EXPECT_EQ(end_of(failed_job("BackoffLimitExceeded", "")), JobEnd::kFailed);
  EXPECT_EQ(end_of(Json()), JobEnd::kNone);
}

TEST(AttemptRecord, TheRankThatFailedFirstIsTheEvidence) {
  const Attempt attempt = recorded(failed_job("BackoffLimitExceeded", "x"),
                                   {failed_pod("p-1", 1, "RuntimeError: NCCL error: remote process exited"),
                                    failed_pod("p-0", 42, "ValueError: no such column")});
  EXPECT_EQ(attempt.outcome, Outcome::kUserError);
  EXPECT_EQ(attempt.exit_code, 42);
  EXPECT_THAT(attempt.message, HasSubstr("pod p-0, container trainer"));
  EXPECT_THAT(attempt.message, HasSubstr("no such column"));
}

TEST(AttemptRecord, AFullShmIsRecordedWithWhatTheContainerHadThere) {
  const Json pod = failed_pod("p-0", 135, "Bus error");
  const auto message = [&](const std::string& spec) {
    Json job = failed_job("BackoffLimitExceeded", "x");
    job["spec"]["template"]["spec"] = yaml(spec);
    const Attempt attempt = recorded(job, {pod});
    EXPECT_EQ(attempt.outcome, Outcome::kHostOutOfMemory);
    EXPECT_TRUE(attempt.shared_memory_full);
    return attempt.message;
  };
  const auto volume = [](const std::string& source) {
    return "{volumes: [{name: v, " + source +
           "}], containers: [{name: trainer, volumeMounts: [{name: v, mountPath: /dev/shm}]}]}";
  };
  EXPECT_THAT(message("{containers: [{name: trainer}]}"), HasSubstr("64 MiB"));
  EXPECT_THAT(message(volume("emptyDir: {medium: Memory, sizeLimit: 16Gi}")), HasSubstr("has 16.0 GiB"));
  EXPECT_THAT(message(volume("hostPath: {path: /x}")), HasSubstr("mounts its volume v there"));
  EXPECT_THAT(message("7"), HasSubstr("64 MiB"));
  EXPECT_FALSE(
      recorded(failed_job("BackoffLimitExceeded", "x"), {failed_pod("p-0", 1, "x")}).shared_memory_full);
}

constexpr const char* kFilledByOthers =
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 23.70 GiB of which 41.75 MiB "
    "is free. Process 12345 has 22.45 GiB memory in use. Including non-PyTorch memory, this process has 1.20 GiB memory in use.";

Json failed_pod_on(const std::string& node, const std::string& message) {
  Json pod = failed_pod("p-0", 1, message);
  pod["spec"]["nodeName"] = node;
  return pod;
}

TEST(AttemptRecord, ACardThatOthersFillNamesItsNodeAndTheirBytes) {
  Attempt attempt{.avoid_nodes = {"node-a"}};
  record_end(attempt, failed_job("BackoffLimitExceeded", "x"), {failed_pod_on("node-b", kFilledByOthers)},
             kNow);
  EXPECT_EQ(attempt.outcome, Outcome::kCudaOutOfMemory);
  EXPECT_TRUE(attempt.out_of_memory.others_filled_card());
  EXPECT_THAT(attempt.avoid_nodes, ::testing::ElementsAre("node-a", "node-b"));
  EXPECT_THAT(
      attempt.message,
      HasSubstr(
          "others held 22.5 GiB of the card's 23.7 GiB on node node-b, where 1.26 GiB were needed: pod p-0"));
}

// Else the job would run on that node without end.
TEST(AttemptRecord, ANodeThatCannotBeAvoidedIsNoExcuse) {
  const auto recorded_with = [](std::vector<std::string> avoided, const std::string& node) {
    Attempt attempt{.avoid_nodes = std::move(avoided)};
    record_end(attempt, failed_job("BackoffLimitExceeded", "x"), {failed_pod_on(node, kFilledByOthers)},
               kNow);
    EXPECT_EQ(attempt.outcome, Outcome::kCudaOutOfMemory);
    EXPECT_TRUE(attempt.out_of_memory.needed);
    EXPECT_FALSE(attempt.out_of_memory.others_filled_card());
    return attempt.avoid_nodes;
  };
  EXPECT_THAT(recorded_with({}, ""), ::testing::IsEmpty()) << "not known";
  EXPECT_THAT(recorded_with({"node-a"}, "node-a"), ::testing::SizeIs(1))
      << "avoided in vain: the template binds the pods to it";
  const std::vector<std::string> many(crds::kMaxAvoidedNodes, "node-c");
  EXPECT_EQ(recorded_with(many, "node-d"), many) << "the others are rather the job's own processes";
}

TEST(AttemptRecord, WithoutPodsTheJobsWordsTell) {
  const Attempt preempted =
      recorded(failed_job("PodFailurePolicy",
                          "Pod ns/p has condition DisruptionTarget matching FailJob rule at index 0"),
               {});
  EXPECT_EQ(preempted.outcome, Outcome::kPreempted);
  EXPECT_THAT(preempted.message, HasSubstr("DisruptionTarget"));
  const Attempt lost = recorded(failed_job("BackoffLimitExceeded", "Job has reached the limit"), {});
  EXPECT_EQ(lost.outcome, Outcome::kInfrastructureFailure);
  EXPECT_THAT(lost.message, HasSubstr("BackoffLimitExceeded"));
}

// The pod that was taken has gone, unseen; the others were stopped for it.
TEST(AttemptRecord, TheEndsOfTheOtherPodsDoNotHideADisruption) {
  const Json job = failed_job("PodFailurePolicy",
                              "Pod ns/p-0 has condition DisruptionTarget matching FailJob rule at index 0");
  Json stopped = failed_pod("p-1", 143, "");
  stopped["metadata"]["deletionTimestamp"] = "2026-11-21T08:30:00Z";
  EXPECT_EQ(recorded(job, {stopped}).outcome, Outcome::kPreempted);
  EXPECT_EQ(recorded(job, {failed_pod("p-1", 1, "RuntimeError: NCCL error: remote process exited")}).outcome,
            Outcome::kPreempted);
  // What is a cause by itself, and was there first, stays one.
  EXPECT_EQ(recorded(job, {failed_pod("p-1", 1, "torch.OutOfMemoryError: CUDA out of memory.")}).outcome,
            Outcome::kCudaOutOfMemory);
}

TEST(AttemptRecord, AFailedJobHasNotSucceededWhateverItsPodsSay) {
  const Attempt attempt =
      recorded(failed_job("DeadlineExceeded", "Job was active longer than specified deadline"),
               {yaml("{metadata: {name: p}, status: {phase: Succeeded}}")});
  EXPECT_EQ(attempt.outcome, Outcome::kUnknown);
  EXPECT_THAT(attempt.message, HasSubstr("DeadlineExceeded"));
}

TEST(AttemptRecord, ALongMessageIsCutAtAWholeCharacter) {
  std::string message = "ValueError: ";
  while (message.size() < 5000) {
    message += "\u00e9";
  }
  Attempt attempt;
  record_end(attempt, Outcome::kUserError, message, kNow);
  EXPECT_LE(attempt.message.size(), crds::kMaxAttemptMessage);
  EXPECT_GE(attempt.message.size(), crds::kMaxAttemptMessage - 1);
  EXPECT_EQ(static_cast<unsigned char>(attempt.message.back()), 0xA9);
}

// The same with the shards of the model on the card and the whole model beside them.
TEST(AttemptRecord, OutOfMemoryBeforeTheFirstForwardPassIsToldApart) {
  Json pod;
  pod["metadata"]["name"] = "p";
  pod["status"]["phase"] = "Failed";
  Json& container = pod["status"]["containerStatuses"][0];
  container["name"] = "trainer";
  container["state"]["terminated"]["exitCode"] = 1;
  const auto record = [&](const char* training) {
    container["state"]["terminated"]["message"] =
        std::string(R"({"plimsoll":1,"stage":"peak","rank":0,"training":)") + training +
        R"(,"deviceUsedBytes":70,"capacityBytes":80})"
        "\n[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.";
    Json job;
    job["status"]["conditions"][0]["type"] = "Failed";
    job["status"]["conditions"][0]["status"] = "True";
    crds::Attempt attempt;
    record_end(attempt, job, {pod}, "2026-11-21T10:00:00Z");
    EXPECT_EQ(attempt.outcome, crds::Outcome::kCudaOutOfMemory);
    return attempt;
  };
  const crds::Attempt early = record("false");
  EXPECT_TRUE(early.ended_in_startup);
  EXPECT_EQ(early.observed_startup, Bytes{70});
  EXPECT_EQ(early.message.find("during start-up, before the first forward pass: "), 0U) << early.message;
  const crds::Attempt late = record("true");
  EXPECT_FALSE(late.ended_in_startup);
  EXPECT_FALSE(late.observed_startup);
  EXPECT_EQ(late.message.find("start-up"), std::string::npos);
}

TEST(AttemptRecord, KeepsWhatTheTrainersReported) {
  Json pod;
  pod["metadata"]["name"] = "p";
  pod["status"]["phase"] = "Succeeded";
  pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] =
      R"({"plimsoll":1,"stage":"peak","rank":0,"allocatedBytes":50,"reservedBytes":60,"contextBytes":5,)"
      R"("deviceUsedBytes":70,"capacityBytes":80})";
  Json job;
  job["status"]["conditions"][0]["type"] = "Complete";
  job["status"]["conditions"][0]["status"] = "True";
  crds::Attempt attempt;
  record_end(attempt, job, {pod}, "2026-11-21T10:00:00Z");
  EXPECT_EQ(attempt.outcome, crds::Outcome::kSucceeded);
  EXPECT_EQ(attempt.observed_peak, Bytes{70});
  EXPECT_EQ(attempt.observed_allocated, Bytes{50});
  EXPECT_EQ(attempt.observed_reserved, Bytes{60});
  EXPECT_EQ(attempt.observed_context, Bytes{5});
  EXPECT_EQ(attempt.observed_communication, Bytes{5});
}

TEST(AttemptRecord, KeepsTheHostsRatesOfATrainingThroughHostMemoryAlone) {
  Json pod;
  pod["metadata"]["name"] = "p";
  pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] =
      R"({"plimsoll":1,"stage":"peak","hostToDeviceBytesPerSecond":50,"hostUpdateBytesPerSecond":9})";
  for (const bool swap_plan : {false, true}) {
    crds::Attempt attempt;
    attempt.swap_plan = swap_plan;
    record_end(attempt, Json(), {pod}, "2026-11-21T10:00:00Z");
    EXPECT_EQ(attempt.observed_host_bandwidth, swap_plan ? std::optional(Bytes{50}) : std::nullopt);
    EXPECT_EQ(attempt.observed_host_update_bandwidth, swap_plan ? std::optional(Bytes{9}) : std::nullopt);
  }
}

}  // namespace
}  // namespace plimsoll::remediation
