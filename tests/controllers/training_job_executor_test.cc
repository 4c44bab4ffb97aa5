// A job's way through its attempts, one look at a time, on the embedded API server.
#include "controllers/training_job_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/quantity.h"
#include "controllers/job_children.h"
#include "crds/shared_memory.h"
#include "remediation/remediation_note.h"
#include "tests/controllers/job_world.h"
#include "tests/testing/eventually.h"

namespace plimsoll::controllers {
namespace {

using crds::Attempt;
using crds::JobStatus;
using crds::Outcome;
using plimsoll::testing::DyingClient;
using plimsoll::testing::job_yaml;
using plimsoll::testing::JobWorld;
using plimsoll::testing::kOutOfMemory;
using ::testing::HasSubstr;

std::string reason_of(const JobStatus& status, const char* type) {
  const crds::Condition* condition = status.find(type);
  return condition == nullptr ? "" : condition->reason;
}

class TrainingJobPass : public ::testing::Test {
 protected:
  JobWorld world_;
};

TEST_F(TrainingJobPass, BeginsWithAnAttemptOfWhatTheJobNeeds) {
  world_.create(job_yaml("ads", 16));
  world_.settle("ads");
  const JobStatus status = world_.status("ads");
  ASSERT_EQ(status.attempts.size(), 1U);
  const Attempt& attempt = status.attempts[0];
  EXPECT_EQ(attempt.number, 0);
  EXPECT_EQ(attempt.gpu_model, "A100-80GB");
  EXPECT_EQ(attempt.outcome, Outcome::kRunning);
  EXPECT_FALSE(attempt.start_time.empty());
  EXPECT_TRUE(status.is_true("Estimated"));
  EXPECT_TRUE(status.is_true("Provisioned"));
  // No webhook has seen the job: the controller has sized it.
  EXPECT_LT(attempt.trainers, 16);
  EXPECT_EQ(status.requested_trainers, 16);
  EXPECT_EQ(status.gpus_saved, 16 - attempt.trainers);
  ASSERT_TRUE(attempt.estimated.has_value());
  EXPECT_GT(attempt.estimated->count, 0);
  EXPECT_NE(text_member(status.throughput, {"gpuHoursPerMillionSamples"}), "");
  EXPECT_NE(text_member(status.throughput, {"requested", "gpuHoursPerMillionSamples"}), "");

  const Json child = world_.child("ads-0");
  EXPECT_EQ(child["metadata"]["ownerReferences"][0]["uid"], world_.job("ads")["metadata"]["uid"]);
  EXPECT_EQ(text_member(child, {"metadata", "labels", "kueue.x-k8s.io/queue-name"}), "research");
  EXPECT_EQ(status.plan_name, "ads-0-plan");
  const Result<Json> plan = world_.client().get(kConfigMaps, "default", "ads-0-plan");
  ASSERT_TRUE(plan.ok());
  const Result<Json> content = parse_json(text_member(*plan, {"data", "plan.json"}));
  ASSERT_TRUE(content.ok());
  EXPECT_EQ((*content)["trainers"].asInt64(), attempt.trainers);
  EXPECT_TRUE((*content)["sharding"]["feasible"].asBool());
  EXPECT_TRUE((*content)["torchrec"].isObject());
  EXPECT_TRUE(world_.client().get(kServices, "default", "ads-0").ok());
}

// No webhook has seen these jobs.
TEST_F(TrainingJobPass, AJobThatNamesNoModeGetsThatOfItsNamespace) {
  world_.label_namespace("Off");
  world_.create(job_yaml("advised", 16));
  world_.settle("advised");
  EXPECT_EQ(world_.status("advised").attempts.at(0).trainers, 16);
  const Json advised = world_.job("advised");
  EXPECT_EQ(text_member(advised, {"spec", "provisioning", "mode"}), "Off");
  EXPECT_NE(text_member(advised, {"metadata", "annotations", "plimsoll.dev/provisioning-reason"}), "");

  world_.label_namespace("Initial");
  world_.create(job_yaml("sized", 16));
  world_.settle("sized");
  EXPECT_LT(world_.status("sized").attempts.at(0).trainers, 16);
  EXPECT_EQ(text_member(world_.job("sized"), {"spec", "provisioning", "mode"}), "Initial");
  world_.fail_pods("sized-0", kOutOfMemory);
  world_.settle("sized");
  EXPECT_EQ(reason_of(world_.status("sized"), "Failed"), "ResizingNotAllowed");

  world_.label_namespace("sometimes");  // which is no mode
  world_.policy.mode = crds::ProvisioningMode::kOff;
  world_.create(job_yaml("by-default", 16));
  world_.settle("by-default");
  EXPECT_EQ(world_.status("by-default").attempts.at(0).trainers, 16);
}

// A client without the right to read namespaces.
class WithoutNamespaces final : public plimsoll::testing::DyingClient {
 public:
  explicit WithoutNamespaces(kube::Client& to)
      : DyingClient(to, std::numeric_limits<int>::max(), /*loses_answer=*/false) {}
  Result<Json> get(const kube::Resource& resource, const std::string& ns, const std::string& name,
                   const kube::CallOptions& options) override {
    return resource.plural == "namespaces" ? Result<Json>(Error(ErrorCode::kForbidden, "no right"))
                                           : DyingClient::get(resource, ns, name, options);
  }
};

// It was read in each pass: a job that ended, or was suspended, waited for the right, too.
TEST_F(TrainingJobPass, TheModeOfTheNamespaceIsReadForDecisionsAlone) {
  WithoutNamespaces client(world_.client());
  world_.create(job_yaml("ads", 16));
  world_.patch("ads", R"({"metadata":{"annotations":{"plimsoll.dev/provisioning-decision":"{}"}}})");
  world_.settle("ads");  // as admitted by an older webhook, which wrote no mode
  world_.complete("ads-0");
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(world_.look("ads", &client).ok());
  }
  EXPECT_TRUE(world_.status("ads").is_true("Succeeded"));

  world_.create(job_yaml("undecided", 16));
  const Result<RequeueAfter> look = world_.look("undecided", &client);
  ASSERT_FALSE(look.ok());
  EXPECT_THAT(look.error().message, HasSubstr("read the mode of the job's namespace"));
}

TEST_F(TrainingJobPass, AdviceOnlyLeavesTheSizeOfEveryJob) {
  world_.policy.advice_only = true;
  world_.create(job_yaml("ads", 16, "  provisioning: {mode: Auto}\n"));
  world_.settle("ads");
  EXPECT_EQ(world_.status("ads").attempts.at(0).trainers, 16);
  EXPECT_EQ(text_member(world_.job("ads"), {"spec", "provisioning", "mode"}), "Auto")
      << "its own again, later";
  world_.fail_pods("ads-0", kOutOfMemory);
  world_.settle("ads");
  EXPECT_EQ(reason_of(world_.status("ads"), "Failed"), "ResizingNotAllowed");
}

TEST_F(TrainingJobPass, AJobKeepsTheClustersShareOfWhatItRequests) {
  world_.policy.min_share_of_asked = 0.5;
  world_.create(job_yaml("ads", 16));
  world_.settle("ads");
  EXPECT_EQ(world_.status("ads").attempts.at(0).trainers, 8);
}

std::string unfit_job(const std::string& on_unfit) {
  return R"(
apiVersion: plimsoll.dev/v1alpha1
kind: TrainingJob
metadata: {name: ads}
spec:
  model:
    transformer: {layers: 80, hidden: 8192, heads: 64, ffn: 28672, vocab: 128256, seqLen: 8192}
  training: {batchSizePerTrainer: 8, parallelism: {strategy: DDP}}
  provisioning: {onUnfit: )" +
         on_unfit + R"(}
  trainers: {replicas: 8, perNode: 8}
  template: {spec: {containers: [{name: trainer, image: "trainer:1"}]}}
)";
}

// It was started with condition Provisioned True.
TEST_F(TrainingJobPass, AJobThatFitsNoCardIsStartedAsRequestedAndSaysSo) {
  world_.create(unfit_job("Admit"));
  world_.settle("ads");
  const JobStatus status = world_.status("ads");
  ASSERT_EQ(status.attempts.size(), 1U);
  EXPECT_EQ(status.attempts[0].trainers, 8);
  ASSERT_NE(status.find("Provisioned"), nullptr);
  EXPECT_FALSE(status.is_true("Provisioned"));
  EXPECT_EQ(reason_of(status, "Provisioned"), "NoFittingGPU");
  EXPECT_THAT(status.find("Provisioned")->message, HasSubstr("nothing was decided"));
}

// The webhook was not there to deny it.
TEST_F(TrainingJobPass, AJobThatFitsNoCardIsNotStartedWhereItsOwnerWantsThat) {
  world_.create(unfit_job("Deny"));
  world_.settle("ads");
  const JobStatus status = world_.status("ads");
  EXPECT_TRUE(status.is_true("Failed"));
  EXPECT_THAT(status.find("Failed")->message, HasSubstr("onUnfit is Deny"));
  EXPECT_FALSE(world_.client().get(kJobs, "default", "ads-0").ok());
}

TEST_F(TrainingJobPass, RunsToSuccess) {
  world_.create(job_yaml("ads"));
  world_.settle("ads");
  world_.run_pods("ads-0");
  world_.settle("ads");
  EXPECT_TRUE(world_.status("ads").is_true("Running"));
  world_.complete("ads-0");
  world_.settle("ads");
  const JobStatus status = world_.status("ads");
  EXPECT_TRUE(status.is_true("Succeeded"));
  EXPECT_FALSE(status.is_true("Running"));
  EXPECT_EQ(status.attempts.back().outcome, Outcome::kSucceeded);
  EXPECT_FALSE(status.completion_time.empty());
  EXPECT_EQ(status.restarts, 0);
}

TEST_F(TrainingJobPass, AfterOutOfMemoryItIsNeverTheSameSizeAgain) {
  world_.create(job_yaml("ads"));
  world_.settle("ads");
  const Attempt first = world_.status("ads").attempts[0];
  world_.fail_pods("ads-0", kOutOfMemory);
  world_.settle("ads");
  const JobStatus status = world_.status("ads");
  ASSERT_EQ(status.attempts.size(), 2U);
  const Attempt& ended = status.attempts[0];
  EXPECT_EQ(ended.outcome, Outcome::kCudaOutOfMemory);
  EXPECT_EQ(ended.exit_code, 1);
  ASSERT_TRUE(ended.out_of_memory.needed.has_value());
  EXPECT_NEAR(static_cast<double>(ended.out_of_memory.needed->count), 90.15 * (1LL << 30), 1e8);
  EXPECT_GT(status.attempts[1].trainers, first.trainers);
  EXPECT_TRUE(status.is_true("OOMDetected"));
  EXPECT_EQ(status.restarts, 1);
  EXPECT_EQ(status.restarts_counted, 1);
  EXPECT_EQ(world_.job("ads")["spec"]["trainers"]["replicas"].asInt64(), status.attempts[1].trainers);
  EXPECT_FALSE(world_.child("ads-1").isNull());
  world_.complete("ads-1");
  world_.settle("ads");
  EXPECT_TRUE(world_.status("ads").is_true("Succeeded"));
}

TEST_F(TrainingJobPass, OutOfMemoryAtMaxTrainersFailsWithWordsToActOn) {
  world_.create(job_yaml("ads", 4, "  provisioning: {maxTrainers: 4, minTrainers: 4}\n"));
  world_.settle("ads");
  world_.fail_pods("ads-0", kOutOfMemory);
  world_.settle("ads");
  const JobStatus status = world_.status("ads");
  EXPECT_TRUE(status.is_true("Failed"));
  EXPECT_EQ(status.attempts.size(), 1U);
  EXPECT_THAT(status.find("Failed")->message, HasSubstr("maxTrainers"));
}

TEST_F(TrainingJobPass, APreemptionIsNotCharged) {
  for (const bool pod_is_gone : {false, true}) {
    const std::string name = pod_is_gone ? "gone" : "seen";
    world_.create(job_yaml(name));
    world_.settle(name);
    const Attempt first = world_.status(name).attempts[0];
    world_.preempt(name + "-0", pod_is_gone);
    world_.settle(name);
    const JobStatus status = world_.status(name);
    ASSERT_EQ(status.attempts.size(), 2U);
    EXPECT_EQ(status.attempts[0].outcome, Outcome::kPreempted) << status.attempts[0].message;
    EXPECT_EQ(status.attempts[1].trainers, first.trainers);
    EXPECT_EQ(status.restarts, 1);
    EXPECT_EQ(status.restarts_counted, 0);
    EXPECT_TRUE(status.is_true("Preempted"));
  }
}

TEST_F(TrainingJobPass, WaitsBeforeItStartsAPreemptedJobAgain) {
  world_.create(job_yaml("ads"));
  world_.settle("ads");
  world_.preempt("ads-0", false);
  const Result<RequeueAfter> next = world_.look("ads");
  ASSERT_TRUE(next.ok());
  ASSERT_TRUE(next->has_value());
  EXPECT_GT(**next, std::chrono::milliseconds(0));
  JobStatus status = world_.status("ads");
  EXPECT_EQ(status.attempts.size(), 1U);
  EXPECT_FALSE(status.next_attempt_time.empty());
  EXPECT_TRUE(status.is_true("Restarting"));
  world_.pass(std::chrono::hours(1));
  ASSERT_TRUE(world_.look("ads").ok());
  status = world_.status("ads");
  EXPECT_EQ(status.attempts.size(), 2U);
  EXPECT_TRUE(status.next_attempt_time.empty());
  EXPECT_FALSE(status.is_true("Restarting"));
}

TEST_F(TrainingJobPass, AUserErrorIsNotRetried) {
  world_.create(job_yaml("ads"));
  world_.settle("ads");
  world_.fail_pods("ads-0",
                   "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n"
                   "ModuleNotFoundError: No module named 'ads'");
  world_.settle("ads");
  const JobStatus status = world_.status("ads");
  EXPECT_TRUE(status.is_true("Failed"));
  EXPECT_EQ(status.attempts.size(), 1U);
  EXPECT_THAT(status.attempts[0].message, HasSubstr("ModuleNotFoundError"));
}

TEST_F(TrainingJobPass, APatternOfTheClustersOwnDecides) {
  const Result<remediation::Patterns> own = remediation::Patterns::with_own(
      "- {rule: proof, outcome: InfrastructureFailure, text: ['quota service is down']}");
  ASSERT_TRUE(own);
  world_.patterns = &*own;
  world_.create(job_yaml("ads"));
  world_.settle("ads");
  world_.fail_pods("ads-0", "ValueError: the quota service is down");
  world_.settle("ads");
  const JobStatus status = world_.status("ads");
  EXPECT_FALSE(status.is_true("Failed"));
  EXPECT_EQ(status.attempts[0].outcome, Outcome::kInfrastructureFailure);
}

constexpr const char* kShmIsFull =
    "trainer-0:41:93 [3] NCCL WARN Error while creating shared memory segment nccl-shm-recv-1 (size 9637888)";

// The memory limit was raised, which leaves /dev/shm as it is: the job failed the same way until maxRestarts.
TEST_F(TrainingJobPass, AFullShmGetsALargerOneThatAllLaterAttemptsHave) {
  world_.create(job_yaml("ads"));
  world_.settle("ads");
  const auto size = [&](int attempt) {
    const Json child = world_.child("ads-" + std::to_string(attempt));
    const Json& pod = child["spec"]["template"]["spec"];
    return text_member(pod["volumes"][pod["volumes"].size() - 1], {"emptyDir", "sizeLimit"});
  };
  EXPECT_EQ(size(0), "");
  world_.fail_pods("ads-0", kShmIsFull);
  world_.settle("ads");
  JobStatus status = world_.status("ads");
  ASSERT_EQ(status.attempts.size(), 2U);
  EXPECT_EQ(status.attempts[0].outcome, Outcome::kHostOutOfMemory);
  EXPECT_TRUE(status.attempts[0].shared_memory_full);
  EXPECT_THAT(status.attempts[0].message, HasSubstr("64 MiB"));
  EXPECT_THAT(status.find("Restarting")->reason, "Restarted");
  EXPECT_EQ(status.restarts_counted, 1);
  const std::optional<Bytes> given = status.attempts[1].shared_memory;
  ASSERT_TRUE(given);
  EXPECT_EQ(size(1), format_bytes(*given));
  EXPECT_EQ(status.attempts[1].trainers, status.attempts[0].trainers);

  world_.preempt("ads-1", false);
  world_.settle("ads");
  EXPECT_EQ(size(2), size(1)) << "kept";
  world_.patch("ads", R"({"spec":{"suspend":true}})");
  world_.settle("ads");
  world_.patch("ads", R"({"spec":{"suspend":false}})");
  world_.settle("ads");
  EXPECT_EQ(size(3), size(1)) << "kept";
  world_.fail_pods("ads-3", kShmIsFull);
  world_.settle("ads");
  EXPECT_EQ(size(4), format_bytes(*given * 2));
}

// At any write: the size is in the note, then in the status.
TEST_F(TrainingJobPass, AnOperatorThatDiesGivesTheSameShm) {
  for (int writes = 0; writes < 8; ++writes) {
    for (const bool loses_answer : {false, true}) {
      const std::string name = "ads-" + std::to_string(writes) + (loses_answer ? "-lost" : "");
      world_.create(job_yaml(name));
      world_.settle(name);
      world_.fail_pods(name + "-0", kShmIsFull);
      DyingClient dying(world_.client(), writes, loses_answer);
      (void)world_.look(name, &dying);
      world_.settle(name);
      const JobStatus status = world_.status(name);
      ASSERT_EQ(status.attempts.size(), 2U) << name;
      EXPECT_EQ(status.attempts[1].shared_memory,
                crds::usual_shared_memory(std::min<std::int64_t>(8, status.attempts[1].trainers)));
      const Json child = world_.child(name + "-1");
      EXPECT_EQ(text_member(child["spec"]["template"]["spec"]["volumes"][1], {"emptyDir", "sizeLimit"}),
                format_bytes(*status.attempts[1].shared_memory))
          << name;
      world_.erase(name);
    }
  }
}

TEST_F(TrainingJobPass, AFullShmOnAVolumeOfTheTemplateIsLeftAndNamed) {
  std::string yaml = job_yaml("ads");
  const std::string plain = "- {name: trainer, image: \"registry.example/t:1\"}";
  yaml.replace(
      yaml.find(plain), plain.size(),
      "- {name: trainer, image: \"registry.example/t:1\", volumeMounts: [{name: mine, mountPath: /dev/shm}]}\n"
      "      volumes: [{name: mine, hostPath: {path: /dev/shm}}]");
  world_.create(yaml);
  world_.settle("ads");
  world_.fail_pods("ads-0", kShmIsFull);
  world_.settle("ads");
  const JobStatus status = world_.status("ads");
  EXPECT_THAT(status.attempts[0].message, HasSubstr("mounts its volume mine there"));
  ASSERT_EQ(status.attempts.size(), 2U);
  EXPECT_FALSE(status.attempts[1].shared_memory);
  const Json child = world_.child("ads-1");
  EXPECT_EQ(child["spec"]["template"]["spec"]["volumes"].size(), 2U) << "its own, and the plan's";
}

TEST_F(TrainingJobPass, ANodeWhoseCardOthersFillIsAvoidedAndTheJobKeepsItsSize) {
  world_.create(job_yaml("ads"));
  world_.settle("ads");
  world_.fail_pods(
      "ads-0",
      "CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of 23.70 GiB of which 41.75 MiB is free. "
      "Process 12345 has 22.45 GiB memory in use. Including non-PyTorch memory, this process has 1.20 GiB memory in use.");
  world_.settle("ads");
  const JobStatus status = world_.status("ads");
  ASSERT_EQ(status.attempts.size(), 2U);
  EXPECT_EQ(status.attempts[0].outcome, Outcome::kCudaOutOfMemory);
  EXPECT_EQ(status.attempts[1].trainers, status.attempts[0].trainers);
  EXPECT_EQ(status.restarts_counted, 1);
  EXPECT_THAT(status.attempts[1].avoid_nodes, ::testing::ElementsAre("gpu-7"));
  EXPECT_THAT(write_json(world_.child("ads-1")["spec"]["template"]["spec"]["affinity"]),
              HasSubstr(R"("operator":"NotIn","values":["gpu-7"])"));
  EXPECT_THAT(status.find("Restarting")->message, HasSubstr("began"));
  EXPECT_THAT(status.find("OOMDetected")->message,
              HasSubstr("others held 22.5 GiB of the card's 23.7 GiB on node gpu-7"));
}

TEST_F(TrainingJobPass, SuspensionEndsTheAttemptAndResumptionBeginsAnother) {
  world_.create(job_yaml("ads"));
  world_.settle("ads");
  world_.patch("ads", R"({"spec":{"suspend":true}})");
  world_.settle("ads");
  JobStatus status = world_.status("ads");
  EXPECT_TRUE(status.is_true("Suspended"));
  EXPECT_EQ(status.attempts[0].outcome, Outcome::kSuspended);
  EXPECT_TRUE(world_.child("ads-0").isNull());
  world_.patch("ads", R"({"spec":{"suspend":false}})");
  world_.settle("ads");
  status = world_.status("ads");
  EXPECT_FALSE(status.is_true("Suspended"));
  ASSERT_EQ(status.attempts.size(), 2U);
  EXPECT_EQ(status.restarts_counted, 0);
  EXPECT_FALSE(world_.child("ads-1").isNull());
}

// The operator dies after it has deleted the Job and before the status says why, or its last write is refused,
// because the user has resumed the job.
TEST_F(TrainingJobPass, AJobThatIsResumedDuringItsSuspensionWasSuspendedAndNotDeleted) {
  for (int writes = 0; writes < 5; ++writes) {
    for (const bool loses_answer : {false, true}) {
      const std::string name = "ads-" + std::to_string(writes) + (loses_answer ? "-lost" : "");
      world_.create(job_yaml(name));
      world_.settle(name);
      world_.patch(name, R"({"spec":{"suspend":true}})");
      DyingClient dying(world_.client(), writes, loses_answer);
      (void)world_.look(name, &dying);
      world_.patch(name, R"({"spec":{"suspend":false}})");
      world_.settle(name);
      const JobStatus status = world_.status(name);
      EXPECT_FALSE(status.is_true("Suspended")) << name;
      ASSERT_FALSE(status.attempts.empty()) << name;
      EXPECT_EQ(status.attempts.back().outcome, Outcome::kRunning) << name;
      EXPECT_FALSE(world_.child(name + "-" + std::to_string(status.attempts.size() - 1)).isNull()) << name;
      for (std::size_t i = 0; i + 1 < status.attempts.size(); ++i) {
        EXPECT_EQ(status.attempts[i].outcome, Outcome::kSuspended) << name;
      }
      world_.erase(name);
    }
  }
}

TEST_F(TrainingJobPass, AJobThatIsSuspendedFromTheStartHasNoPods) {
  world_.create(job_yaml("ads", 4, "  suspend: true\n"));
  world_.settle("ads");
  EXPECT_TRUE(world_.status("ads").is_true("Suspended"));
  EXPECT_TRUE(world_.status("ads").attempts.empty());
  EXPECT_TRUE(world_.child("ads-0").isNull());
}

TEST_F(TrainingJobPass, ADeletedChildIsAFailureOfTheInfrastructure) {
  world_.create(job_yaml("ads"));
  world_.settle("ads");
  world_.erase_child("ads-0");
  world_.settle("ads");
  const JobStatus status = world_.status("ads");
  ASSERT_EQ(status.attempts.size(), 2U);
  EXPECT_EQ(status.attempts[0].outcome, Outcome::kInfrastructureFailure);
  EXPECT_FALSE(world_.child("ads-1").isNull());
}

// The operator was away while the attempt ended, and comes back to a job that is to be stopped.
TEST_F(TrainingJobPass, WhatHasEndedIsNotStopped) {
  const std::string limited = "  activeDeadlineSeconds: 86400\n";
  world_.create(job_yaml("late", 4, limited));
  world_.create(job_yaml("held", 4));
  world_.create(job_yaml("broken", 4, limited));
  for (const char* name : {"late", "held", "broken"}) {
    ASSERT_TRUE(world_.look(name).ok());  // and no more: to settle is to wait for the deadline
  }
  world_.complete("late-0");
  world_.complete("held-0");
  world_.fail_pods("broken-0", "ValueError: no");
  world_.patch("held", R"({"spec":{"suspend":true}})");
  world_.pass(std::chrono::hours(24 * 365 * 10));
  for (const char* name : {"late", "held", "broken"}) {
    world_.settle(name);
  }
  EXPECT_TRUE(world_.status("late").is_true("Succeeded"));
  EXPECT_TRUE(world_.status("held").is_true("Succeeded"));
  const JobStatus broken = world_.status("broken");
  EXPECT_EQ(reason_of(broken, "Failed"), "DeadlineExceeded");
  EXPECT_EQ(broken.attempts[0].outcome, Outcome::kUserError);
}

TEST_F(TrainingJobPass, AJobOfAnotherControllerIsLeftAlone) {
  world_.create(job_yaml("ads", 4, "  managedBy: kueue.x-k8s.io/multikueue\n"));
  world_.settle("ads");
  EXPECT_TRUE(world_.job("ads")["status"].isNull() || world_.job("ads")["status"].empty());
  EXPECT_TRUE(world_.child("ads-0").isNull());
  world_.create(job_yaml("ours", 4, std::string("  managedBy: ") + crds::kTrainingJobController + "\n"));
  world_.settle("ours");
  EXPECT_FALSE(world_.child("ours-0").isNull());
}

// Pods that have a node but wait for their plan would wait for ever.
TEST_F(TrainingJobPass, WhatStartingPodsNeedIsMadeAgain) {
  world_.create(job_yaml("ads"));
  world_.settle("ads");
  const std::string plan = write_json((*world_.client().get(kConfigMaps, "default", "ads-0-plan"))["data"]);
  ASSERT_TRUE(world_.client().remove(kConfigMaps, "default", "ads-0-plan").ok());
  ASSERT_TRUE(world_.client().remove(kServices, "default", "ads-0").ok());
  const Result<RequeueAfter> next = world_.look("ads");
  ASSERT_TRUE(next.ok());
  ASSERT_TRUE(next->has_value());
  EXPECT_LE(**next, std::chrono::seconds(30));
  world_.pass(std::chrono::hours(24 * 365 * 10));  // the embedded server's clock is another
  world_.settle("ads");
  const Result<Json> again = world_.client().get(kConfigMaps, "default", "ads-0-plan");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(write_json((*again)["data"]), plan);
  EXPECT_TRUE(world_.client().get(kServices, "default", "ads-0").ok());
  EXPECT_EQ(world_.status("ads").attempts.size(), 1U);
}

TEST_F(TrainingJobPass, EndsAtItsDeadline) {
  world_.create(job_yaml("ads", 4, "  activeDeadlineSeconds: 600\n"));
  world_.settle("ads");
  world_.pass(std::chrono::hours(24 * 365 * 10));  // the embedded server's clock is another
  world_.settle("ads");
  const JobStatus status = world_.status("ads");
  EXPECT_EQ(reason_of(status, "Failed"), "DeadlineExceeded");
  EXPECT_TRUE(world_.child("ads-0").isNull());
}

TEST_F(TrainingJobPass, IsDeletedAfterItsTimeToLive) {
  world_.create(job_yaml("ads", 4, "  ttlSecondsAfterFinished: 60\n"));
  world_.settle("ads");
  world_.complete("ads-0");
  const Result<RequeueAfter> next = world_.look("ads");
  ASSERT_TRUE(next.ok());
  ASSERT_TRUE(next->has_value());
  EXPECT_LE(**next, std::chrono::seconds(61));
  EXPECT_FALSE(world_.job("ads").isNull());
  world_.pass(std::chrono::seconds(61));
  ASSERT_TRUE(world_.look("ads").ok());
  EXPECT_TRUE(world_.job("ads").isNull());
}

TEST_F(TrainingJobPass, AJobThatIsBeingDeletedIsLeftAlone) {
  world_.create(job_yaml("ads"));
  Json job = world_.job("ads");
  job["metadata"]["deletionTimestamp"] = "2026-11-21T08:30:00Z";
  PassContext with;
  with.client = &world_.client();
  with.cluster = &world_.cluster();
  ASSERT_TRUE(reconcile(with, job).ok());
  EXPECT_TRUE(world_.child("ads-0").isNull());
}

// Upon a stale copy, which a cache may hold, nothing may be made again.
TEST_F(TrainingJobPass, AStaleCopyStartsNothing) {
  world_.create(job_yaml("ads"));
  ASSERT_TRUE(world_.look("ads").ok());
  Json stale = world_.job("ads");
  stale["status"]["attempts"][0].removeMember("startTime");
  stale["metadata"]["resourceVersion"] = "1";
  world_.erase_child("ads-0");
  PassContext with;
  with.client = &world_.client();
  with.cluster = &world_.cluster();
  with.find_job = [](const std::string&) { return kube::SharedObject(); };
  with.find_pods = with.departed_pods = [](const std::string&) { return std::vector<Json>(); };
  const Result<RequeueAfter> next = reconcile(with, stale);
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().code, ErrorCode::kConflict);
  EXPECT_TRUE(world_.child("ads-0").isNull());
}

TEST_F(TrainingJobPass, AnOrphanOfTheSameShapeIsAdopted) {
  world_.create(job_yaml("ads"));
  world_.settle("ads");
  Json orphan = world_.child("ads-0");
  const Json labels = orphan["metadata"]["labels"];
  ASSERT_TRUE(world_.client().remove(kTrainingJobs, "default", "ads").ok());
  // What kubectl delete --cascade=orphan leaves behind.
  orphan["metadata"] = Json(::Json::objectValue);
  orphan["metadata"]["name"] = "ads-0";
  orphan["metadata"]["labels"] = labels;
  ASSERT_TRUE(
      plimsoll::testing::eventually("the child is gone", [&] { return world_.child("ads-0").isNull(); }));
  ASSERT_TRUE(world_.client().create(kJobs, "default", orphan).ok());
  const Json uid = world_.child("ads-0")["metadata"]["uid"];
  world_.create(job_yaml("ads"));
  world_.settle("ads");
  const Json child = world_.child("ads-0");
  EXPECT_EQ(child["metadata"]["uid"], uid);
  EXPECT_EQ(child["metadata"]["ownerReferences"][0]["uid"], world_.job("ads")["metadata"]["uid"]);
  EXPECT_EQ(world_.status("ads").attempts.size(), 1U) << write_json(world_.job("ads")["status"]);
}

TEST_F(TrainingJobPass, ANameThatIsTakenIsPassedOver) {
  Json other(::Json::objectValue);
  other["apiVersion"] = "batch/v1";
  other["kind"] = "Job";
  other["metadata"]["name"] = "ads-0";
  other["spec"]["template"]["spec"]["restartPolicy"] = "Never";
  other["spec"]["template"]["spec"]["containers"][0]["name"] = "c";
  other["spec"]["template"]["spec"]["containers"][0]["image"] = "i";
  ASSERT_TRUE(world_.client().create(kJobs, "default", other).ok());
  world_.create(job_yaml("ads"));
  world_.settle("ads");
  const JobStatus status = world_.status("ads");
  ASSERT_EQ(status.attempts.size(), 2U);
  EXPECT_THAT(status.attempts[0].message, HasSubstr("the name ads-0 in jobs is taken"));
  EXPECT_FALSE(world_.child("ads-1").isNull());
}

// kubectl delete and create, faster than the garbage collector: the children and pods of the first are there.
TEST_F(TrainingJobPass, WhatADeletedJobOfTheSameNameLeftIsNoneOfItsBusiness) {
  world_.create(job_yaml("ads"));
  world_.settle("ads");
  world_.fail_pods("ads-0", kOutOfMemory);
  // The embedded server collects garbage at once; so the first job's children are made again as they were.
  const Json child = world_.child("ads-0");
  ASSERT_TRUE(world_.client().remove(kTrainingJobs, "default", "ads").ok());
  Json left = child;
  left["metadata"].removeMember("uid");
  left["metadata"].removeMember("resourceVersion");
  ASSERT_TRUE(world_.client().create(kJobs, "default", left).ok());
  const std::string garbage = text_member(world_.child("ads-0"), {"metadata", "uid"});

  world_.create(job_yaml("ads"));
  world_.settle("ads");
  const JobStatus status = world_.status("ads");
  ASSERT_EQ(status.attempts.size(), 1U);
  EXPECT_EQ(status.attempts[0].outcome, Outcome::kRunning);
  EXPECT_NE(text_member(world_.child("ads-0"), {"metadata", "uid"}), garbage);
  world_.complete("ads-0");
  world_.settle("ads");
  EXPECT_EQ(world_.status("ads").attempts[0].outcome, Outcome::kSucceeded);
}

TEST_F(TrainingJobPass, OldAttemptsAreClearedAway) {
  world_.create(job_yaml("ads"));
  world_.settle("ads");
  for (int i = 0; i < 4; ++i) {
    world_.preempt("ads-" + std::to_string(i), false);
    world_.settle("ads");
  }
  EXPECT_EQ(world_.status("ads").attempts.size(), 5U);
  EXPECT_TRUE(world_.child("ads-0").isNull());
  EXPECT_TRUE(world_.child("ads-1").isNull());
  EXPECT_FALSE(world_.child("ads-2").isNull());
  EXPECT_FALSE(world_.child("ads-4").isNull());
}

// Row 6 of the attacks: kubectl get -o yaml, delete, create. The API server drops the status, and the note of
// the first job's first attempt stays.
TEST_F(TrainingJobPass, AJobCreatedAnewFromItsYamlIgnoresTheNotesOfTheFirst) {
  world_.create(job_yaml("ads", 16));
  world_.settle("ads");
  const std::int64_t given = world_.status("ads").attempts[0].trainers;
  ASSERT_LT(given, 16);
  world_.preempt("ads-0", false);
  world_.settle("ads");
  Json copy = world_.job("ads");
  ASSERT_FALSE(text_member(copy, {"metadata", "annotations", remediation::kRemediationAnnotation}).empty());
  for (const char* field : {"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"}) {
    copy["metadata"].removeMember(field);
  }
  world_.erase("ads");
  ASSERT_TRUE(world_.client().create(kTrainingJobs, "default", copy).ok());
  world_.settle("ads");
  ASSERT_EQ(world_.status("ads").attempts.size(), 1U);
  // What was requested first is known still, and the size that was decided stays.
  EXPECT_EQ(world_.status("ads").requested_trainers, 16);
  EXPECT_EQ(world_.status("ads").attempts[0].trainers, given);
  world_.fail_pods("ads-0", "ModuleNotFoundError: No module named 'ads'");
  world_.settle("ads");
  const JobStatus status = world_.status("ads");
  EXPECT_TRUE(status.is_true("Failed")) << write_json(world_.job("ads")["status"]);
  EXPECT_EQ(status.attempts.size(), 1U);
  EXPECT_EQ(reason_of(status, "Failed"), "CodeError");
}

// What came with a manifest is not written into a status whose schema refuses it: the job would stay there.
TEST_F(TrainingJobPass, ARequestThatNobodyCanHaveMadeIsNotRecorded) {
  for (const char* replicas : {"-5", "0", "65537", "9223372036854775807", "-9223372036854775808", "true"}) {
    world_.create(job_yaml("ads"));
    world_.patch("ads",
                 std::string(R"({"metadata":{"annotations":{"plimsoll.dev/provisioning":"disabled",)") +
                     R"("plimsoll.dev/requested-trainers":"{\"perNode\":8,\"replicas\":)" + replicas +
                     R"(,\"gpuModel\":\")" + std::string(100, 'x') + R"(\"}"}}})");
    world_.settle("ads");
    const JobStatus status = world_.status("ads");
    ASSERT_EQ(status.attempts.size(), 1U) << replicas;
    EXPECT_EQ(status.requested_trainers, 4) << replicas;
    EXPECT_EQ(status.requested_gpu_model, "") << replicas;
    EXPECT_EQ(status.gpus_saved, 0) << replicas;
    world_.erase("ads");
  }
}

// A process that dies at any write, its answer lost or not, leaves a job that the next process brings to the
// same end; and no attempt's Job is made twice.
TEST_F(TrainingJobPass, ADeathAtAnyWriteLosesAndDoublesNothing) {
  int number = 0;
  for (const bool loses_answer : {false, true}) {
    for (int write = 0;; ++write) {
      const std::string name = "job" + std::to_string(number++);
      SCOPED_TRACE("write " + std::to_string(write) + (loses_answer ? ", answer lost" : ""));
      DyingClient dying(world_.client(), write, loses_answer);
      bool died_here = false;
      const auto settle = [&] {
        for (int i = 0; i < 20 && !dying.died(); ++i) {
          (void)world_.look(name, &dying);
          world_.pass(std::chrono::seconds(600));
        }
        died_here = dying.died();
        world_.settle(name);
      };
      world_.create(job_yaml(name));
      settle();
      world_.fail_pods(name + "-0", kOutOfMemory);
      settle();
      world_.preempt(name + "-1", true);
      settle();
      world_.complete(name + "-2");
      settle();
      const JobStatus status = world_.status(name);
      ASSERT_TRUE(status.is_true("Succeeded")) << write_json(world_.job(name)["status"]);
      ASSERT_EQ(status.attempts.size(), 3U);
      EXPECT_EQ(status.attempts[0].outcome, Outcome::kCudaOutOfMemory);
      EXPECT_EQ(status.attempts[1].outcome, Outcome::kPreempted);
      EXPECT_EQ(status.restarts, 2);
      EXPECT_EQ(status.restarts_counted, 1);
      for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(world_.children_made().at(name + "-" + std::to_string(i)), 1) << i;
      }
      if (!died_here) {
        EXPECT_GT(write, 10);  // so many writes does a job take
        break;
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll::controllers
