// One attempt of a job at a time: the next begins when the pods of the last have gone, whatever ended it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <random>

#include "base/yaml.h"
#include "controllers/job_children.h"
#include "controllers/training_job_executor.h"
#include "remediation/attempt_record.h"
#include "tests/controllers/job_world.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::controllers {
namespace {

using crds::JobStatus;
using crds::Outcome;
using plimsoll::testing::DyingClient;
using plimsoll::testing::job_yaml;
using plimsoll::testing::JobWorld;
using plimsoll::testing::kOutOfMemory;
using ::testing::AllOf;
using ::testing::HasSubstr;

class TrainingJobOverlap : public ::testing::Test {
 protected:
  void start() {
    world_.create(job_yaml("ads"));
    world_.settle("ads");
    world_.start_slow_pod("ads-0");
  }

  void suspend(bool on) {
    world_.patch("ads", on ? R"({"spec":{"suspend":true}})" : R"({"spec":{"suspend":false}})");
  }

  std::string running() {
    const JobStatus status = world_.status("ads");
    const crds::Condition* condition = status.find("Running");
    return condition == nullptr ? "" : condition->reason + ": " + condition->message;
  }

  // The second attempt waits for as long as the pod takes, and starts then.
  void expect_wait_and_start(const char* reason = "WaitingForPods: ") {
    for (int minute = 0; minute < 10; ++minute) {
      const Result<RequeueAfter> next = world_.look("ads");
      ASSERT_TRUE(next.ok()) << to_string(next.error());
      ASSERT_TRUE(next->has_value());
      EXPECT_LE(**next, std::chrono::minutes(10));  // a back-off comes first
      world_.pass(std::chrono::minutes(1));
    }
    EXPECT_TRUE(world_.child("ads-1").isNull());
    EXPECT_THAT(running(), AllOf(HasSubstr(reason), HasSubstr("pod ads-0-0-"), HasSubstr("on node gpu-7")));
    EXPECT_EQ(world_.status("ads").attempts.size(), 1U);
    EXPECT_EQ(world_.end_pods(), 1);
    world_.settle("ads");
    EXPECT_FALSE(world_.child("ads-1").isNull()) << running();
    EXPECT_EQ(world_.status("ads").attempts.size(), 2U);
  }

  JobWorld world_;
};

// Row 5 of the attacks.
TEST_F(TrainingJobOverlap, ResumedWhileAPodTerminatesTheNextAttemptWaits) {
  start();
  suspend(true);
  world_.settle("ads");
  EXPECT_TRUE(world_.child("ads-0").isNull());
  suspend(false);
  expect_wait_and_start();
}

TEST_F(TrainingJobOverlap, AfterADeletedJobTheNextAttemptWaits) {
  start();
  world_.erase_child("ads-0");
  expect_wait_and_start();
}

// What kubectl delete job --cascade=orphan leaves: nothing ends such a pod, and the message says which it is.
TEST_F(TrainingJobOverlap, PodsThatOutliveTheirJobHoldTheNextAttempt) {
  start();
  kube::CallOptions orphan;
  orphan.propagation = kube::Propagation::kOrphan;
  ASSERT_TRUE(world_.client().remove(kJobs, "default", "ads-0", orphan).ok());
  world_.settle("ads");
  EXPECT_THAT(running(), HasSubstr("pod ads-0-0-"));
  EXPECT_TRUE(world_.child("ads-1").isNull());
  const Result<Json> pods = world_.client().list(kPods, "default");
  ASSERT_TRUE(pods.ok());
  ASSERT_TRUE(
      world_.client().remove(kPods, "default", text_member((*pods)["items"][0], {"metadata", "name"})).ok());
  world_.end_pods();
  world_.settle("ads");
  EXPECT_FALSE(world_.child("ads-1").isNull());
}

TEST_F(TrainingJobOverlap, AfterAFailedAttemptTheNextWaitsForItsOtherPods) {
  start();
  world_.preempt("ads-0", true);
  world_.pass(std::chrono::hours(1));  // over the back-off
  ASSERT_TRUE(world_.look("ads").ok());
  world_.pass(std::chrono::hours(1));
  ASSERT_TRUE(world_.look("ads").ok());
  EXPECT_THAT(running(), HasSubstr("WaitingForPods: "));
  EXPECT_TRUE(world_.child("ads-1").isNull());
  const Result<Json> pods = world_.client().list(kPods, "default");
  for (const Json& pod : (*pods)["items"]) {
    (void)world_.client().remove(kPods, "default", text_member(pod, {"metadata", "name"}));
  }
  world_.end_pods();
  world_.settle("ads");
  EXPECT_FALSE(world_.child("ads-1").isNull()) << running();
}

TEST_F(TrainingJobOverlap, APodOfALostNodeIsSaidToBeStuck) {
  start();
  world_.erase_child("ads-0");
  world_.pass(std::chrono::hours(24 * 365 * 10));  // the embedded server's clock is another
  expect_wait_and_start("PodsStuck: ");
}

TEST_F(TrainingJobOverlap, AStuckPodComesWithWordsToActOn) {
  start();
  world_.erase_child("ads-0");
  world_.pass(std::chrono::hours(24 * 365 * 10));
  world_.settle("ads");
  EXPECT_THAT(running(), AllOf(HasSubstr("gpu-7"), HasSubstr("delete its Node object"),
                               HasSubstr("node.kubernetes.io/out-of-service")));
}

TEST_F(TrainingJobOverlap, AJobCreatedAnewWaitsForThePodsOfItsPredecessor) {
  start();
  world_.erase("ads");
  world_.create(job_yaml("ads"));
  world_.settle("ads");
  EXPECT_THAT(running(), HasSubstr("WaitingForPods: "));
  EXPECT_TRUE(world_.child("ads-0").isNull());
  EXPECT_TRUE(world_.status("ads").attempts.empty());
  EXPECT_EQ(world_.end_pods(), 1);
  world_.settle("ads");
  EXPECT_FALSE(world_.child("ads-0").isNull());
}

// The operator dies after it has made the Job and before it has said so; somebody deletes that Job.
TEST_F(TrainingJobOverlap, AJobThatWasMadeUnrecordedAndDeletedHoldsItsOwnAttempt) {
  world_.create(job_yaml("ads"));
  DyingClient dying(world_.client(), 5, false);  // spec, status, ConfigMap, Service and Job get through
  (void)world_.look("ads", &dying);
  ASSERT_TRUE(dying.died());
  ASSERT_FALSE(world_.child("ads-0").isNull());
  ASSERT_TRUE(world_.status("ads").attempts.at(0).start_time.empty());
  world_.start_slow_pod("ads-0");
  world_.erase_child("ads-0");
  world_.settle("ads");
  EXPECT_TRUE(world_.child("ads-0").isNull());
  EXPECT_THAT(running(), HasSubstr("WaitingForPods: "));
  EXPECT_EQ(world_.end_pods(), 1);
  world_.settle("ads");
  EXPECT_FALSE(world_.child("ads-0").isNull());
}

// Whoever may create pods could else hold up jobs of others in the namespace without a trace of an owner.
TEST_F(TrainingJobOverlap, PodsThatOnlyWearTheLabelHoldNothingUp) {
  const auto create = [&](const kube::Resource& resource, const std::string& text) {
    const Result<std::vector<Json>> object = parse_yaml_documents(text);
    ASSERT_TRUE(object.ok());
    const Result<Json> made = world_.client().create(resource, "default", object->front());
    ASSERT_TRUE(made.ok()) << to_string(made.error());
  };
  const std::string labels = "labels: {plimsoll.dev/job-name: ads, plimsoll.dev/attempt: '3'}";
  const std::string spec = "spec: {containers: [{name: c, image: i}]}\n";
  create(kPods, "apiVersion: v1\nkind: Pod\nmetadata: {name: bare, " + labels + "}\n" + spec);
  create(kPods, "apiVersion: v1\nkind: Pod\nmetadata: {name: of-a-set, " + labels +
                    ", ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: ads-3, uid: x, "
                    "controller: true}]}\n" +
                    spec);
  create(kJobs,
         "apiVersion: batch/v1\nkind: Job\nmetadata: {name: ads-3, ownerReferences: [{apiVersion: batch/v1, "
         "kind: "
         "CronJob, name: c, uid: y, controller: true}]}\nspec: {template: {spec: {restartPolicy: Never, "
         "containers: [{name: c, image: i}]}}}\n");
  create(kPods, "apiVersion: v1\nkind: Pod\nmetadata: {name: of-a-job, " + labels +
                    ", ownerReferences: [{apiVersion: batch/v1, kind: Job, name: ads-3, uid: " +
                    text_member(world_.child("ads-3"), {"metadata", "uid"}) + ", controller: true}]}\n" +
                    spec);
  world_.create(job_yaml("ads"));
  world_.settle("ads");
  EXPECT_FALSE(world_.child("ads-0").isNull()) << running();
}

// An operator that was stopped for longer than its lease goes on where it was: it makes the Job of an attempt
// that its successor has ended long ago.
TEST_F(TrainingJobOverlap, AJobOfAnAttemptThatIsOverIsRemovedBeforeTheNextBegins) {
  start();
  Json late = world_.child("ads-0");
  late["metadata"].removeMember("uid");
  late["metadata"].removeMember("resourceVersion");
  suspend(true);
  world_.settle("ads");
  EXPECT_EQ(world_.end_pods(), 1);
  ASSERT_TRUE(world_.client().create(kJobs, "default", late).ok());
  world_.start_slow_pod("ads-0");
  suspend(false);
  world_.settle("ads");
  EXPECT_TRUE(world_.child("ads-0").isNull());
  EXPECT_TRUE(world_.child("ads-1").isNull());
  EXPECT_THAT(running(), HasSubstr("WaitingForPods: "));
  EXPECT_EQ(world_.end_pods(), 1);
  world_.settle("ads");
  EXPECT_FALSE(world_.child("ads-1").isNull());
}

TEST_F(TrainingJobOverlap, AJobOfAnAttemptThatIsOverIsRemovedWhileTheNextRuns) {
  world_.create(job_yaml("ads"));
  world_.settle("ads");
  Json late = world_.child("ads-0");
  late["metadata"].removeMember("uid");
  late["metadata"].removeMember("resourceVersion");
  world_.erase_child("ads-0");
  world_.settle("ads");
  ASSERT_FALSE(world_.child("ads-1").isNull());
  ASSERT_TRUE(world_.client().create(kJobs, "default", late).ok());
  ASSERT_TRUE(world_.look("ads").ok());
  EXPECT_TRUE(world_.child("ads-0").isNull());
  EXPECT_FALSE(world_.child("ads-1").isNull());
}

// Sixty steps of everything that may happen to a job, in any order, with an operator that dies now and
// then: the pods that have not ended are always of one Job.
TEST_F(TrainingJobOverlap, InNoOrderOfEventsDoTwoAttemptsRunAtOnce) {
  const std::uint64_t seed = plimsoll::testing::random_seed();
  std::cout << "seed " << seed << std::endl;
  std::mt19937_64 random(seed);
  std::size_t attempts = 0;  // of all rounds
  constexpr int kRounds = 12;
  for (int round = 0; round < kRounds; ++round) {
    std::size_t most_attempts = 0;
    JobWorld world;
    world.create(job_yaml("ads", 4, "  failurePolicy: {maxRestarts: 100}\n"));
    std::string history;
    for (int step = 0; step < 60; ++step) {
      const std::string child = world.status("ads").attempts.empty()
                                    ? ""
                                    : "ads-" + std::to_string(world.status("ads").attempts.back().number);
      const Json job = child.empty() ? Json() : world.child(child);
      const bool runs = !job.isNull() && remediation::end_of(job) == remediation::JobEnd::kNone;
      switch (random() % 14) {  // what lets the next attempt begin comes more often
        case 0:
          world.patch("ads", R"({"spec":{"suspend":true}})");
          history += "suspend ";
          break;
        case 1:
        case 9:
          world.patch("ads", R"({"spec":{"suspend":false}})");
          history += "resume ";
          break;
        case 2:
        case 10:
          if (!job.isNull()) {
            world.erase_child(child);
            history += "delete-job ";
          }
          break;
        case 3:
          if (runs) {
            world.fail_child(child, "PodFailurePolicy",
                             "Pod x has condition DisruptionTarget matching FailJob rule at index 0");
            // The Job controller deletes the others.
            const Result<Json> pods = world.client().list(kPods, "default");
            for (const Json& pod : (*pods)["items"]) {
              (void)world.client().remove(kPods, "default", text_member(pod, {"metadata", "name"}));
            }
            history += "preempt ";
          }
          break;
        case 4:
        case 11: history += "end-pods:" + std::to_string(world.end_pods()) + " "; break;
        case 5: {
          DyingClient dying(world.client(), static_cast<int>(random() % 8), random() % 2 == 0);
          (void)world.look("ads", &dying);
          history += "die ";
          break;
        }
        case 6:
          if (random() % 4 == 0) {
            world.erase("ads");
            world.create(job_yaml("ads", 4, "  failurePolicy: {maxRestarts: 100}\n"));
            history += "recreate ";
          }
          break;
        default:
          (void)world.look("ads");
          world.pass(std::chrono::minutes(20));
          history += "look ";
      }
      most_attempts = std::max(most_attempts, world.status("ads").attempts.size());
      // The Job controller: each Job that has not ended has a pod.
      for (const Json& each : world.children()) {
        if (remediation::end_of(each) == remediation::JobEnd::kNone &&
            !world.live_pods().contains(text_member(each, {"metadata", "uid"}))) {
          world.start_slow_pod(text_member(each, {"metadata", "name"}));
        }
      }
      ASSERT_LE(world.live_pods().size(), 1U) << "seed " << seed << " round " << round << ": " << history;
    }
    attempts += most_attempts;
    // And the job is not stuck.
    world.patch("ads", R"({"spec":{"suspend":false}})");
    for (int i = 0; i < 10; ++i) {
      (void)world.end_pods();
      world.settle("ads");
    }
    const JobStatus status = world.status("ads");
    ASSERT_TRUE(status.is_true("Failed") || !world.live_pods().empty() ||
                !world.child("ads-" + std::to_string(status.attempts.back().number)).isNull())
        << "seed " << seed << ": " << history << write_json(world.job("ads")["status"]);
  }
  // In some rounds one attempt followed another. With fewer, nothing was tested.
  EXPECT_GT(attempts, kRounds) << "seed " << seed;
}

}  // namespace
}  // namespace plimsoll::controllers
