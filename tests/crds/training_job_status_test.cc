#include "crds/training_job_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/checkout.h"
#include "tests/crds/test_jobs.h"

namespace plimsoll::crds {
namespace {

constexpr const char* kNow = "2026-11-21T08:30:00Z";
constexpr const char* kLater = "2026-11-21T09:00:00Z";

Attempt full_attempt() {
  Attempt attempt;
  attempt.number = 2;
  attempt.gpu_model = "A100-80GB";
  attempt.trainers = 16;
  attempt.per_node = 8;
  attempt.batch_size = 64;
  attempt.accumulation = 4;
  attempt.estimated = 70_GiB;
  attempt.observed_startup = 50_GiB;
  attempt.ended_in_startup = true;
  attempt.observed_peak = 72_GiB;
  attempt.observed_allocated = 60_GiB;
  attempt.observed_reserved = 66_GiB;
  attempt.observed_context = 1_GiB;
  attempt.observed_communication = 2_GiB;
  attempt.observed_host_bandwidth = 50_GiB;
  attempt.observed_host_update_bandwidth = 120_GiB;
  attempt.learned = Bytes{-5};
  attempt.out_of_memory.needed = 81_GiB;
  attempt.out_of_memory.capacity = 80_GiB;
  attempt.out_of_memory.fragmentation = 3_GiB;
  attempt.out_of_memory.held_by_others = 22_GiB;
  attempt.avoid_nodes = {"node-a", "node-b"};
  attempt.exit_code = 1;
  attempt.container = "trainer";
  attempt.expandable_segments = true;
  attempt.swap_plan = true;
  attempt.host_memory = 200_GiB;
  attempt.predicted_host_memory = 233_GiB;
  attempt.shared_memory = 16_GiB;
  attempt.shared_memory_full = true;
  attempt.start_time = kNow;
  attempt.completion_time = kLater;
  attempt.outcome = Outcome::kCudaOutOfMemory;
  attempt.message = "CUDA out of memory";
  return attempt;
}

JobStatus full_status() {
  JobStatus status;
  status.observed_generation = 4;
  status.set({.type = "Running", .status = "True", .reason = "AttemptRunning", .message = "2 pods"}, kNow);
  status.start_time = kNow;
  status.completion_time = kLater;
  status.requested_trainers = 128;
  status.requested_gpu_model = "A100-80GB";
  status.requested_global_batch = 8192;
  status.global_batch = 1024;
  status.gpus_saved = -8;
  status.throughput["samplesPerSecond"] = "1553";
  status.swap_plan["mode"] = "vPP";
  status.gpu_hours = "96.5";
  status.gpu_hours_saved = "12.3";
  status.estimate["trainers"] = 16;
  status.plan_name = "ads-2-plan";
  status.restarts = 2;
  status.restarts_counted = 1;
  status.next_attempt_time = kLater;
  status.attempts = {full_attempt()};
  return status;
}

Json with_status(const Json& status) {
  Json object(::Json::objectValue);
  object["status"] = status;
  return object;
}

TEST(JobStatus, ComesBackAsItWasWritten) {
  EXPECT_EQ(decode_status(with_status(encode(full_status()))), full_status());
}

TEST(JobStatus, AnObjectWithoutOneHasAnEmptyOne) {
  EXPECT_EQ(decode_status(Json(::Json::objectValue)), JobStatus());
}

// What the schema lacks is pruned by the API server without a word.
TEST(JobStatus, WritesOnlyWhatTheSchemaHas) {
  const Json crd = yaml(read_file(PLIMSOLL_SOURCE_DIR "/crds/plimsoll.dev_trainingjobs.yaml"));
  const Json& schema =
      crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"];
  const Json status = encode(full_status());
  for (const std::string& name : status.getMemberNames()) {
    EXPECT_TRUE(schema.isMember(name)) << name;
  }
  const Json& attempt_schema = schema["attempts"]["items"]["properties"];
  std::set<std::string> written;
  for (const std::string& name : status["attempts"][0].getMemberNames()) {
    EXPECT_TRUE(attempt_schema.isMember(name)) << name;
    written.insert(name);
  }
  for (const std::string& name : attempt_schema.getMemberNames()) {
    EXPECT_TRUE(written.contains(name)) << name << " is never written";
  }
  std::set<std::string> outcomes;
  for (const Json& name : attempt_schema["outcome"]["enum"]) {
    outcomes.insert(name.asString());
  }
  for (int i = 0; i <= static_cast<int>(Outcome::kUnknown); ++i) {
    EXPECT_EQ(outcomes.erase(name_of(static_cast<Outcome>(i))), 1U) << i;
  }
  EXPECT_TRUE(outcomes.empty());
}

TEST(JobStatus, KeepsTheLatestAttempts) {
  JobStatus status;
  for (int i = 0; i < 40; ++i) {
    status.attempts.push_back({.number = i});
  }
  const JobStatus kept = decode_status(with_status(encode(status)));
  ASSERT_EQ(kept.attempts.size(), kMaxAttempts);
  EXPECT_EQ(kept.attempts.back().number, 39);
}

TEST(JobStatus, LeavesOutWhatIsDamaged) {
  const JobStatus status = decode_status(with_status(yaml(
      "{restarts: many, attempts: [{number: 1, trainers: -2, estimatedBytes: -5, outcome: Exploded}, 7], "
      "conditions: nonsense, requested: 3, estimate: {trainers: 1}}")));
  EXPECT_EQ(status.restarts, 0);
  ASSERT_EQ(status.attempts.size(), 2U);
  EXPECT_FALSE(status.attempts[0].estimated.has_value());
  EXPECT_EQ(status.attempts[0].outcome, Outcome::kUnknown);
  EXPECT_TRUE(status.conditions.empty());
}

TEST(Condition, TimeChangesOnlyWithTheStatus) {
  JobStatus status;
  status.set({.type = "Running", .status = "True", .reason = "A", .message = "a"}, kNow);
  status.set({.type = "Running", .status = "True", .reason = "B", .message = "b"}, kLater);
  ASSERT_EQ(status.conditions.size(), 1U);
  EXPECT_EQ(status.conditions[0].last_transition_time, kNow);
  EXPECT_EQ(status.conditions[0].reason, "B");
  status.set({.type = "Running", .status = "False", .reason = "C", .message = "c"}, kLater);
  EXPECT_EQ(status.conditions[0].last_transition_time, kLater);
  EXPECT_FALSE(status.is_true("Running"));
}

TEST(Condition, TheMostTellingComesFirst) {
  JobStatus status;
  for (const char* type : {"Estimated", "Preempted", "Running", "Failed", "Provisioned"}) {
    status.set({.type = type, .status = "True", .reason = "R", .message = ""}, kNow);
  }
  std::vector<std::string> order;
  for (const Condition& condition : status.conditions) {
    order.push_back(condition.type);
  }
  EXPECT_THAT(order, ::testing::ElementsAre("Failed", "Running", "Provisioned", "Preempted", "Estimated"));
}

}  // namespace
}  // namespace plimsoll::crds
