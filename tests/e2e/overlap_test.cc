// One attempt at a time, with pods that take ten minutes to terminate (row 5 of the attacks: a resumed job
// ran twice at once).
#include <gmock/gmock.h>

#include <algorithm>
#include <iostream>
#include <random>
#include <thread>

#include "tests/e2e/training_stage.h"
#include "tests/testing/eventually.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

class OverlapTest : public TrainingTest {
 protected:
  void start() {
    for (int i = 0; i < 4; ++i) {
      add_node("a100-" + std::to_string(i), 4);
    }
    ASSERT_NO_FATAL_FAILURE(start_operator());
    ASSERT_NO_FATAL_FAILURE(wait_for_gpus(16));
    ASSERT_NO_FATAL_FAILURE(start_webhook());
    watch_ = std::make_unique<PodWatch>(server_->make_client());
  }

  void create_and_run(const std::string& stop_after) {
    must({"create", "-f", "-"},
         TrainingJobManifest{
             .annotations = {{"outcome-of-attempt-0", "run"}, {"run-for", "1s"}, {"stop-after", stop_after}},
             .grace_seconds = 600}
             .text());
    const Json job = wait_for("ads", [](const Json& now) { return is_true(now, "Running"); });
    ASSERT_TRUE(is_true(job, "Running")) << story("ads");
  }

  void expect_waiting() {
    Json job =
        wait_for("ads", [](const Json& now) { return why(now, "Running").starts_with("WaitingForPods"); });
    EXPECT_THAT(why(job, "Running"), HasSubstr("pod ads-0-")) << story("ads");
    EXPECT_THAT(why(job, "Running"), HasSubstr("on node a100-")) << story("ads");
    std::this_thread::sleep_for(5s);
    job = live("ads");
    EXPECT_THAT(why(job, "Running"), HasSubstr("WaitingForPods: "));
    EXPECT_TRUE(get("job", "ads-1").isNull()) << story("ads");
    EXPECT_THAT(kubectl({"get", "events"}).output, HasSubstr("WaitingForPods"));
  }

  void expect_success() {
    const Json job = wait_for_end("ads", 180s);
    EXPECT_TRUE(is_true(job, "Succeeded")) << story("ads");
    EXPECT_EQ(attempts_of(job).size(), 2U) << story("ads");
    EXPECT_THAT(watch_->overlaps(), IsEmpty());
  }

  std::unique_ptr<PodWatch> watch_;
};

TEST_F(OverlapTest, ResumedWhilePodsTerminateTheNextAttemptWaits) {
  ASSERT_NO_FATAL_FAILURE(start());
  ASSERT_NO_FATAL_FAILURE(create_and_run("600s"));
  set_suspended("ads", true);
  const Json job = wait_for("ads", [](const Json& now) { return is_true(now, "Suspended"); });
  EXPECT_TRUE(is_true(job, "Suspended")) << story("ads");
  set_suspended("ads", false);
  expect_waiting();
  EXPECT_GT(end_terminating_pods("ads-0"), 0);
  expect_success();
}

TEST_F(OverlapTest, AfterAnEvictionTheNextAttemptWaitsForTheOtherPods) {
  ASSERT_NO_FATAL_FAILURE(start());
  ASSERT_NO_FATAL_FAILURE(create_and_run("600s"));
  const std::vector<Json> pods = pods_of("ads-0");
  ASSERT_GT(pods.size(), 1U);
  evict(text_member(pods[0], {"metadata", "name"}));
  expect_waiting();
  EXPECT_EQ(end_terminating_pods("ads-0"),
            1);  // now the Job has failed, and its controller deletes the others
  EXPECT_TRUE(eventually("the other pods terminate", [&] {
    EXPECT_TRUE(get("job", "ads-1").isNull());
    return end_terminating_pods("ads-0") > 0;
  }));
  expect_success();
}

// kubectl delete job, and the nodes of its pods do not answer: nobody says that the containers have ended,
// until somebody says that the nodes are gone.
TEST_F(OverlapTest, AfterADeletedJobPodsOfALostNodeHoldTheNextAttempt) {
  ASSERT_NO_FATAL_FAILURE(start());
  ASSERT_NO_FATAL_FAILURE(create_and_run("24h"));
  const std::vector<Json> pods = pods_of("ads-0");
  must({"delete", "job", "ads-0", "--wait=false"});
  expect_waiting();
  for (const Json& pod : pods) {
    kubectl({"delete", "node", text_member(pod, {"spec", "nodeName"}), "--ignore-not-found"});
  }
  for (int i = 4; i < 8; ++i) {
    add_node("a100-" + std::to_string(i), 4);
  }
  expect_success();  // once the pod garbage collector has come by
}

TEST_F(OverlapTest, InNoOrderOfSuspensionsDeletionsAndEvictionsDoTwoAttemptsRunAtOnce) {
  ASSERT_NO_FATAL_FAILURE(start());
  const std::uint64_t seed = plimsoll::testing::random_seed();
  std::cout << "seed " << seed << std::endl;
  std::mt19937_64 random(seed);
  must({"create", "-f", "-"},
       TrainingJobManifest{.annotations = {{"outcome", "run"}, {"stop-after", "1500ms"}},
                           .more = "  failurePolicy: {maxRestarts: 100}\n"}
           .text());
  std::string history;
  // Chance may let few attempts follow each other in a round, and then nothing was tested: further rounds follow.
  constexpr int kStepsOfARound = 40;
  constexpr int kMostRounds = 10;
  Json::ArrayIndex most_attempts = 0;  // of all rounds
  for (int step = 0; step < kStepsOfARound || (most_attempts <= 2 && step < kMostRounds * kStepsOfARound);
       ++step) {
    const Json job = live("ads");
    most_attempts = std::max(most_attempts, attempts_of(job).size());
    const std::string child =
        "ads-" + std::to_string(attempts_of(job).empty() ? 0 : attempts_of(job).size() - 1);
    switch (random() % 5) {  // what lets the next attempt begin comes more often
      case 0:
        set_suspended("ads", true);
        history += "suspend ";
        break;
      case 1:
        kubectl({"delete", "job", child, "--wait=false", "--ignore-not-found"});
        history += "delete-job ";
        break;
      case 2:
        if (const std::vector<Json> pods = pods_of(child); !pods.empty()) {
          kubectl({"delete", "pod", text_member(pods[0], {"metadata", "name"}), "--wait=false",
                   "--ignore-not-found"});
          history += "delete-pod ";
        }
        break;
      default: set_suspended("ads", false); history += "resume ";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 1500));
  }
  set_suspended("ads", false);
  const Json job = wait_for(
      "ads", [](const Json& now) { return is_true(now, "Running"); }, 240s);
  EXPECT_TRUE(is_true(job, "Running")) << "seed " << seed << ": " << history << story("ads");
  EXPECT_GT(std::max(most_attempts, attempts_of(job).size()), 2U) << "seed " << seed << ": " << history;
  EXPECT_THAT(watch_->overlaps(), IsEmpty()) << "seed " << seed << ": " << history;
}

}  // namespace
}  // namespace plimsoll::testing
