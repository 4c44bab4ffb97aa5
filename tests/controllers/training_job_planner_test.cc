// The planner by a table of states and the actions that they ask for; no client, no clock.
#include "controllers/training_job_planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "base/yaml.h"
#include "crds/training_job.h"

namespace plimsoll::controllers {
namespace {

using crds::Attempt;
using crds::Outcome;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr const char* kNow = "2026-11-21T08:30:00Z";

constexpr const char* kJob = R"(
apiVersion: plimsoll.dev/v1alpha1
kind: TrainingJob
metadata: {name: ads, namespace: team, uid: u-1}
spec:
  model: {dlrm: {topMLP: [8, 1], bottomMLP: [16, 8], tables: [{name: t, rows: 1000, dim: 8}]}}
  training: {batchSizePerTrainer: 8}
  trainers: {replicas: 4, gpuModel: A100-80GB}
  template: {spec: {containers: [{name: trainer, image: x}]}}
)";

// A job and what is known of it; each row of the table changes it.
struct State {
  State() {
    const Result<std::vector<Json>> documents = parse_yaml_documents(kJob);
    EXPECT_TRUE(documents.ok());
    object = documents->front();
    facts.now = *parse_time(kNow);
  }

  JobStep next() {
    const Result<crds::TrainingJob> decoded = crds::decode_training_job(JsonView(object));
    EXPECT_TRUE(decoded.ok());
    job = *decoded;
    facts.job = &job;
    facts.status = &status;
    return plan_next(facts);
  }

  Attempt& attempt(Outcome outcome = Outcome::kRunning, const std::string& started = kNow) {
    status.attempts.push_back({.number = static_cast<std::int64_t>(status.attempts.size()),
                               .gpu_model = "A100-80GB",
                               .trainers = 4,
                               .start_time = started,
                               .outcome = outcome});
    return status.attempts.back();
  }
  void condition(const char* type, const char* value = "True") {
    status.set({.type = type, .status = value, .reason = "R"}, kNow);
  }
  void no_pods_left() {
    facts.earlier_jobs_removed = true;
    facts.remaining_pods = RemainingPods();
  }
  void pods_left(bool stuck = false) {
    facts.earlier_jobs_removed = true;
    facts.remaining_pods = RemainingPods{.count = 1, .stuck = stuck, .message = "ads-0-0 on gpu-7"};
  }
  void decided(bool restart, const char* reason = "CUDAOutOfMemory") {
    facts.remediation.emplace();
    facts.remediation->restart = restart;
    facts.remediation->reason = reason;
    facts.remediation->message = "the next attempt is larger";
    facts.remediation->expandable_segments = true;
    facts.remediation->shared_memory = 16_GiB;
  }
  void invalid() { object["spec"]["training"]["batchSizePerTrainer"] = 0; }

  Json object;
  crds::TrainingJob job;
  crds::JobStatus status;
  JobFacts facts;
};

// A batch/v1 Job of the attempt.
Json child(int ready = 0, int wanted = 4, const char* owner = "u-1") {
  Json made;
  made["metadata"]["name"] = "ads-0";
  made["metadata"]["uid"] = "child-1";
  if (owner != nullptr) {
    Json& reference = made["metadata"]["ownerReferences"][0];
    reference["uid"] = owner;
    reference["kind"] = "TrainingJob";
    reference["name"] = "ads";
    reference["controller"] = true;
  }
  made["spec"]["parallelism"] = wanted;
  made["status"]["ready"] = ready;
  return made;
}

Json ended_child(const char* type = "Failed", const char* owner = "u-1") {
  Json made = child(0, 4, owner);
  made["status"]["conditions"][0]["type"] = type;
  made["status"]["conditions"][0]["status"] = "True";
  return made;
}

struct Row {
  const char* name;
  std::function<void(State&)> state;
  JobAction action;
  const char* text = "";  // in reason or message
  RequeueAfter after = {};
};

void run(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    State state;
    row.state(state);
    const JobStep step = state.next();
    EXPECT_EQ(static_cast<int>(step.action), static_cast<int>(row.action));
    EXPECT_THAT(step.reason + "|" + step.message, HasSubstr(row.text));
    EXPECT_EQ(step.after, row.after);
  }
}

TEST(TrainingJobPlanner, BeginsAnAttempt) {
  using enum JobAction;
  run({
      {"ANewJob", [](State&) {}, kRemoveEarlierJobs},
      {"EarlierJobsAreRemoved", [](State& s) { s.facts.earlier_jobs_removed = true; }, kFindPods},
      {"PodsOfADeletedJobOfTheSameName", [](State& s) { s.pods_left(); }, kWaitForPods,
       "WaitingForPods|attempt 0 begins when the pods of earlier attempts are gone: ads-0-0 on gpu-7"},
      {"APodOfALostNode", [](State& s) { s.pods_left(true); }, kWaitForPods, "PodsStuck|"},
      {"NoPodIsLeft", [](State& s) { s.no_pods_left(); }, kSize},
      {"Sized", [](State& s) { s.no_pods_left(), s.facts.sized = true; }, kBeginAttempt},
      {"Invalid", [](State& s) { s.no_pods_left(), s.invalid(); }, kRefuseAttempt, "the job is invalid: "},
      {"InvalidButPodsAreLeft", [](State& s) { s.pods_left(), s.invalid(); }, kWaitForPods},
      {"BackOffIsNotOver", [](State& s) { s.status.next_attempt_time = "2026-11-21T08:30:07Z"; }, kWait, "",
       milliseconds(7000)},
      {"BackOffIsOver", [](State& s) { s.status.next_attempt_time = kNow; }, kRemoveEarlierJobs},
      {"ADamagedTime", [](State& s) { s.status.next_attempt_time = "soon"; }, kRemoveEarlierJobs},
  });
}

TEST(TrainingJobPlanner, CreatesTheChildrenOfAnAttempt) {
  using enum JobAction;
  const auto with = [](const std::function<void(State&)>& change) {
    return [change](State& state) {
      state.attempt(Outcome::kRunning, "");
      state.facts.is_current = true;
      state.facts.live_child = Json();
      change(state);
    };
  };
  run({
      {"ItMayBeAStaleCopy", [](State& s) { s.attempt(Outcome::kRunning, ""); }, kCheckCurrent},
      {"ItsJobMayExist", with([](State& s) { s.facts.live_child.reset(); }), kReadChild},
      {"ItsJobExists", with([](State& s) { s.facts.live_child = child(); }), kRecordStart},
      {"TheCacheHasItsJob",
       [](State& s) { s.attempt(Outcome::kRunning, ""), s.facts.cached_child = child(); }, kRecordStart},
      {"PodsOfJobsDeletedSince", with([](State&) {}), kFindPods},
      {"PodsAreLeft", with([](State& s) { s.pods_left(); }), kWaitForPods, "attempt 0 starts when"},
      {"ChangedToBeInvalid", with([](State& s) { s.no_pods_left(), s.invalid(); }), kRecordOutcome,
       "the job is invalid: "},
      {"NothingIsInTheWay", with([](State& s) { s.no_pods_left(); }), kCreateChildren},
      {"AnotherOwnersJobHasTheName",
       with([](State& s) { s.no_pods_left(), s.facts.live_child = child(0, 4, "u-2"); }), kCreateChildren},
  });
  State orphaned;
  with([](State& s) { s.facts.live_child = child(0, 4, nullptr); })(orphaned);
  EXPECT_EQ(orphaned.next().which.except_job_uid, "child-1") << "its pods are adopted with it";
  State foreign;
  with([](State& s) { s.facts.live_child = child(0, 4, "u-2"); })(foreign);
  EXPECT_EQ(foreign.next().which.except_job_uid, "");
}

TEST(TrainingJobPlanner, WatchesAnAttempt) {
  using enum JobAction;
  const auto with = [](const std::function<void(Json&, State&)>& change, const char* started = kNow) {
    return [change, started](State& state) {
      state.attempt(Outcome::kRunning, started);
      Json made = child(2);
      change(made, state);
      state.facts.cached_child = made;
    };
  };
  const auto placed = [](Json&, State& s) { s.facts.unschedulable = ""; };
  constexpr const char* kAMinuteAgo = "2026-11-21T08:29:00Z";
  run({
      {"AnEarlierJobRuns", with([](Json&, State& s) { s.facts.earlier_job_runs = true; }),
       kRemoveEarlierJobs},
      {"ItIsRemoved",
       with([](Json&, State& s) { s.facts.earlier_job_runs = s.facts.earlier_jobs_removed = true; }),
       kReadPods},
      {"Ready", with([](Json& c, State&) { c["status"]["ready"] = 4; }), kReportProgress,
       "PodsReady|4 of 4 pods are ready"},
      {"SomeHaveSucceeded", with([](Json& c, State&) { c["status"]["succeeded"] = 2; }), kReportProgress,
       "PodsReady|"},
      {"Queued", with([](Json& c, State&) { c["spec"]["suspend"] = true; }), kReportProgress,
       "JobSuspended|"},
      {"NotAllReady", with([](Json&, State&) {}), kReadPods},
      {"Unschedulable", with([](Json&, State& s) { s.facts.unschedulable = "no node has 8 GPUs"; }),
       kReportProgress, "Unschedulable|2 of 4 pods are ready: no node has 8 GPUs"},
      {"Pending", with(placed), kReportProgress, "PodsPending|2 of 4", kPollInterval},
      {"PendingForAMinute", with(placed, kAMinuteAgo), kRestoreChildren},
      {"Restored", with([](Json&, State& s) { s.facts.unschedulable = s.facts.restored = ""; }, kAMinuteAgo),
       kReportProgress, "PodsPending|", kPollInterval},
      {"ANameIsTaken",
       with([](Json&, State& s) { s.facts.unschedulable = "", s.facts.restored = "taken"; }, kAMinuteAgo),
       kReportProgress, "NameTaken|taken", kPollInterval},
      {"PodsTerminate", with([](Json& c, State&) { c["status"]["terminating"] = 1; }), kFindPods},
      {"ItsJobIsDeleted", with([](Json& c, State&) { c["metadata"]["deletionTimestamp"] = kNow; }),
       kFindPods},
      {"TheyTakeTheirTime", with([](Json& c, State& s) { c["status"]["terminating"] = 1, s.pods_left(); }),
       kWaitForPods, "attempt 0 waits for pods that terminate"},
      {"NoneTerminates", with([](Json& c, State& s) { c["status"]["terminating"] = 1, s.no_pods_left(); }),
       kReadPods},
      {"Completed", with([](Json& c, State&) { c = ended_child("Complete"); }), kRecordEnd},
      {"Failed", with([](Json& c, State&) { c = ended_child(); }), kRecordEnd},
      {"NonsenseCounts", with([](Json& c, State&) { c["status"] = "x", c["spec"] = 5; }), kReportProgress,
       "PodsReady|0 of 0"},
      {"TheCacheIsBehind", [](State& s) { s.attempt(); }, kReadChild},
      {"TheServerHasIt", [](State& s) { s.attempt(), s.facts.live_child = child(4); }, kReportProgress},
      {"ItsJobWasDeleted", [](State& s) { s.attempt(), s.facts.live_child = Json(); }, kRecordOutcome,
       "the Job ads-0 was deleted"},
      {"AndItsNameIsTaken", [](State& s) { s.attempt(), s.facts.live_child = child(4, 4, "u-2"); },
       kRecordOutcome, "was deleted"},
  });
}

TEST(TrainingJobPlanner, FollowsAFailedAttempt) {
  using enum JobAction;
  const auto with = [](const std::function<void(State&)>& change) {
    return [change](State& state) {
      state.attempt(Outcome::kCudaOutOfMemory);
      change(state);
    };
  };
  run({
      {"Undecided", with([](State&) {}), kDecideRemediation},
      {"Invalid", with([](State& s) { s.invalid(); }), kFail, "InvalidJob|the job is invalid"},
      {"FailedForGood", with([](State& s) { s.decided(false, "MaxResourcesReached"); }), kFail,
       "MaxResourcesReached|"},
      {"Restart", with([](State& s) { s.decided(true); }), kAnnounceRestart},
      {"Announced", with([](State& s) { s.decided(true), s.condition("Restarting"); }), kRemoveEarlierJobs},
      {"BackOff", with([](State& s) {
         s.decided(true), s.condition("Restarting");
         s.status.next_attempt_time = "2026-11-21T08:30:10Z";
       }),
       kWait, "", seconds(10)},
      {"NoPodIsLeft", with([](State& s) { s.decided(true), s.condition("Restarting"), s.no_pods_left(); }),
       kBeginAttempt},
      {"Suspended", [](State& s) { s.attempt(Outcome::kSuspended), s.no_pods_left(); }, kBeginAttempt},
  });
  State state;
  with([](State& s) { s.decided(true), s.condition("Restarting"), s.no_pods_left(); })(state);
  EXPECT_TRUE(state.next().expandable_segments);
  EXPECT_EQ(state.next().shared_memory, 16_GiB);
}

TEST(TrainingJobPlanner, StopsAJobThatIsSuspendedOrTooLate) {
  using enum JobAction;
  const auto suspended = [](const std::function<void(State&)>& change) {
    return [change](State& state) {
      state.object["spec"]["suspend"] = true;
      change(state);
    };
  };
  const auto late = [](const std::function<void(State&)>& change) {
    return [change](State& state) {
      state.object["spec"]["activeDeadlineSeconds"] = 600;
      state.status.start_time = "2026-11-21T08:20:00Z";
      change(state);
    };
  };
  run({
      {"SuspendedFromTheStart", suspended([](State&) {}), kSuspend},
      {"MayHaveEnded", suspended([](State& s) { s.attempt(); }), kReadChild},
      {"HasNotEnded", suspended([](State& s) { s.attempt(), s.facts.live_child = child(); }), kSuspend},
      {"IsDeleted", suspended([](State& s) { s.attempt(), s.facts.live_child = Json(); }), kSuspend},
      {"HasEnded", suspended([](State& s) { s.attempt(), s.facts.live_child = ended_child(); }), kRecordEnd},
      {"AnotherOwnersJobHasEnded",
       suspended([](State& s) { s.attempt(), s.facts.live_child = ended_child("Failed", "u-2"); }), kSuspend},
      {"Resumed", [](State& s) { s.condition("Suspended"); }, kResume},
      {"ResumedBeforeTheAttemptEnded",
       [](State& s) { s.condition("Suspended"), s.attempt(), s.facts.live_child = Json(); }, kSuspend},
      {"Late", late([](State&) {}), kFailAtDeadline},
      {"LateAndSuspended", late([](State& s) { s.object["spec"]["suspend"] = true; }), kFailAtDeadline},
      {"LateButMayHaveEnded", late([](State& s) { s.attempt(); }), kReadChild},
      {"LateButHasEnded", late([](State& s) { s.attempt(), s.facts.live_child = ended_child("Complete"); }),
       kRecordEnd},
      {"InTime", late([](State& s) { s.status.start_time = "2026-11-21T08:20:01Z"; }), kRemoveEarlierJobs},
      {"LateButOver", late([](State& s) { s.condition("Succeeded"); }), kNothing},
  });
}

TEST(TrainingJobPlanner, LeavesAFinishedJobUntilItsTimeToLiveIsOver) {
  using enum JobAction;
  const auto over = [](const char* type, const char* ended) {
    return [=](State& state) {
      state.condition(type);
      state.status.completion_time = ended;
      state.object["spec"]["ttlSecondsAfterFinished"] = 60;
    };
  };
  run({
      {"NoTimeToLive", [](State& s) { s.condition("Failed"); }, kNothing},
      {"InItsTime", over("Failed", "2026-11-21T08:29:30Z"), kWait, "", seconds(30)},
      {"After", over("Succeeded", "2026-11-21T08:29:00Z"), kDeleteJob},
      {"ADamagedTime", over("Succeeded", "yesterday"), kNothing},
      {"BeingDeleted", [](State& s) { s.object["metadata"]["deletionTimestamp"] = kNow; }, kNothing},
  });
}

TEST(TrainingJobPlanner, TellsHowLongUntilTheDeadline) {
  State state;
  state.object["spec"]["activeDeadlineSeconds"] = 600;
  (void)state.next();
  EXPECT_EQ(time_to_deadline(state.facts), RequeueAfter()) << "it has not started";
  state.status.start_time = "2026-11-21T08:29:00Z";
  EXPECT_EQ(time_to_deadline(state.facts), RequeueAfter(seconds(540)));
  state.status.start_time = "2025-11-21T08:29:00Z";
  EXPECT_EQ(time_to_deadline(state.facts), RequeueAfter(seconds(0)));
  state.object["metadata"]["deletionTimestamp"] = kNow;
  EXPECT_EQ(state.next().action, JobAction::kNothing);
  EXPECT_EQ(time_to_deadline(state.facts), RequeueAfter()) << "else it would be looked at without a pause";
  state.object["metadata"].removeMember("deletionTimestamp");
  state.condition("Failed");
  (void)state.next();
  EXPECT_EQ(time_to_deadline(state.facts), RequeueAfter());
}

}  // namespace
}  // namespace plimsoll::controllers
