// The operator is killed (SIGKILL) at random moments while jobs run, grow, are taken away and deleted, among
// jobs that somebody made to hurt. At the end each job stands where it would without, no attempt was started
// twice, no two attempts of a job ran at once, and what is not Plimsoll's is as it was.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "tests/e2e/hostile_jobs.h"
#include "tests/e2e/training_stage.h"
#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::testing {
namespace {

using ::testing::IsEmpty;
using namespace std::chrono_literals;
using Steady = std::chrono::steady_clock;

constexpr std::size_t kJobsAtATime = 5;
constexpr int kMinLifeMilliseconds = 50;
constexpr int kMaxLifeMilliseconds = 2500;  // it is ready after about 300

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// What a job does, and so what must become of it.
enum class Fate { kSucceeds, kGrows, kFails, kEvicted, kDeleted, kFlaps, kRecreated, kNamesTaken };
constexpr int kFates = 8;
constexpr int kMaxFlaps = 6;

struct RunningJob {
  Fate fate;
  bool disturbed = false;  // evicted, deleted, or created anew
  int flaps = 0;           // how often it was suspended or resumed
  Steady::time_point since = Steady::now();
};

class ChaosTest : public TrainingTest {
 protected:
  static const std::vector<std::string> options() { return {"--leader-elect=false"}; }

  void create_job() {
    const std::string name = "job-" + std::to_string(next_++);
    const Fate fate = static_cast<Fate>(random_() % kFates);
    TrainingJobManifest manifest{.name = name};
    manifest.annotations["run-for"] = std::to_string(200 + random_() % 2000) + "ms";
    if (fate == Fate::kGrows) {
      manifest.annotations["outcome-of-attempt-0"] = "fail";
      manifest.annotations["failure-message"] = kOutOfMemoryText;
    } else if (fate == Fate::kFails) {
      manifest.annotations["outcome"] = "fail";
      manifest.annotations["message"] = "Traceback (most recent call last):\nKeyError: 'label'";
    } else if (fate == Fate::kNamesTaken) {
      must({"create", "-f", "-"}, objects_with_the_names_of(name));
      for (const std::string& object : foreign_objects()) {
        if (object.find("/" + name + "-") != std::string::npos) {
          foreign_.insert(object);
        }
      }
    } else if (fate == Fate::kEvicted || fate == Fate::kDeleted || fate == Fate::kRecreated) {
      manifest.annotations["outcome-of-attempt-0"] = "run";  // until it is disturbed
    }
    const CommandResult created = kubectl({"create", "-f", "-"}, manifest.text());
    ASSERT_EQ(created.exit_code, 0) << created.errors;
    running_.emplace(name, RunningJob{.fate = fate});
  }

  // Kind, name and uid of each object that is not Plimsoll's.
  std::set<std::string> foreign_objects() const {
    std::istringstream lines(
        must({"get", "services,jobs,configmaps", "-l", "test=foreign", "-o",
              "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.uid}{\"\\n\"}{end}"})
            .output);
    std::set<std::string> objects;
    for (std::string line; std::getline(lines, line);) {
      objects.insert(line);
    }
    return objects;
  }

  // kubectl get -o yaml, delete, create; what it did stays in its annotations.
  bool recreate(const std::string& name) {
    Json copy = live(name);
    if (attempts_of(copy).empty()) {
      return false;
    }
    copy["spec"]["template"]["metadata"]["annotations"].removeMember(
        "test.plimsoll.dev/outcome-of-attempt-0");
    return kubectl({"replace", "--force", "-f", "-"}, write_json(copy)).exit_code == 0;
  }

  // Takes a pod of a job whose fate that is, or the job.
  void disturb(const std::string& name, RunningJob& job) {
    if (job.disturbed) {
      return;
    }
    if (job.fate == Fate::kFlaps && job.flaps < kMaxFlaps && random_() % 4 == 0) {
      set_suspended(name, job.flaps % 2 == 0);
      ++job.flaps;
    } else if (job.fate == Fate::kRecreated && random_() % 4 == 0) {
      job.disturbed = recreate(name);
    }
    if (job.fate == Fate::kDeleted && random_() % 4 == 0) {
      must({"delete", "tj", name, "--wait=false"});
      job.disturbed = true;
    } else if (job.fate == Fate::kEvicted) {
      const Json child = live_pod(name + "-0");
      const std::string pod = text_member(child, {"metadata", "name"});
      if (text_member(child, {"status", "phase"}) == "Running") {
        const std::string body = R"({"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":")" + pod +
                                 R"(","namespace":"default"}})";
        job.disturbed =
            kubectl({"create", "--raw", "/api/v1/namespaces/default/pods/" + pod + "/eviction", "-f", "-"},
                    body)
                .exit_code == 0;
      }
    }
  }

  Json live_pod(const std::string& child) {
    kube::ListOptions what;
    what.label_selector = "batch.kubernetes.io/job-name=" + child;
    const Result<Json> pods =
        client_->list({.group = "", .version = "v1", .plural = "pods"}, "default", what);
    return pods && !(*pods)["items"].empty() ? (*pods)["items"][0] : Json();
  }

  // True when it stands where it must in the end.
  bool has_ended(const std::string& name, const RunningJob& fate) {
    const Json job = live(name);
    if (fate.fate == Fate::kDeleted) {
      return fate.disturbed && job.isNull();
    }
    if (fate.fate == Fate::kRecreated && !fate.disturbed) {
      return false;
    }
    if (!is_true(job, "Succeeded") && !is_true(job, "Failed")) {
      return false;
    }
    std::vector<std::string> expected;
    switch (fate.fate) {
      case Fate::kSucceeds: expected = {"Succeeded"}; break;
      case Fate::kGrows: expected = {"CUDAOutOfMemory", "Succeeded"}; break;
      case Fate::kFails: expected = {"UserError"}; break;
      case Fate::kFlaps: expected = outcomes_of(job); break;
      case Fate::kRecreated: expected = {"Succeeded"}; break;
      case Fate::kNamesTaken:
        expected = {"InfrastructureFailure", "InfrastructureFailure", "Succeeded"};
        break;
      default: expected = {"Preempted", "Succeeded"}; break;
    }
    if (fate.fate == Fate::kFlaps) {
      std::fill(expected.begin(), expected.end() - 1, "Suspended");
      expected.back() = "Succeeded";
    }
    EXPECT_EQ(outcomes_of(job), expected) << name << write_json_pretty(job["status"]);
    EXPECT_EQ(is_true(job, "Failed"), fate.fate == Fate::kFails) << name;
    EXPECT_EQ(member(job, {"status", "restarts"}).asUInt64(), expected.size() - 1) << name;
    for (Json::ArrayIndex i = 0; i < attempts_of(job).size(); ++i) {
      EXPECT_EQ(attempts_of(job)[i]["number"].asUInt(), i) << name;
    }
    if (fate.fate == Fate::kGrows && expected.size() == attempts_of(job).size()) {
      EXPECT_GT(attempts_of(job)[1]["trainers"].asInt(), attempts_of(job)[0]["trainers"].asInt()) << name;
    }
    must({"delete", "tj", name, "--wait=false"});
    return true;
  }

  // Looks after the jobs once: what has ended goes; `more` makes new ones in its place.
  void tend(bool more) {
    for (auto job = running_.begin(); job != running_.end();) {
      disturb(job->first, job->second);
      if (has_ended(job->first, job->second)) {
        ++ended_;
        job = running_.erase(job);
      } else {
        ++job;
      }
    }
    while (more && running_.size() < kJobsAtATime) {
      ASSERT_NO_FATAL_FAILURE(create_job());
    }
  }

  std::mt19937_64 random_;
  std::map<std::string, RunningJob> running_;
  int next_ = 0;
  int ended_ = 0;
  std::set<std::string> foreign_;  // as they were made
};

TEST_F(ChaosTest, NoJobIsLostDuplicatedOrStuckWhenTheOperatorIsKilled) {
  const std::uint64_t seed = from_environment("PLIMSOLL_CHAOS_SEED", plimsoll::testing::random_seed());
  const std::uint64_t kills = from_environment("PLIMSOLL_CHAOS_KILLS", 200);
  std::cout << "PLIMSOLL_CHAOS_SEED=" << seed << " PLIMSOLL_CHAOS_KILLS=" << kills << std::endl;
  random_.seed(seed);
  for (int i = 0; i < 8; ++i) {
    add_node("a100-" + std::to_string(i));
  }
  ASSERT_NO_FATAL_FAILURE(start_operator());
  ASSERT_NO_FATAL_FAILURE(wait_for_gpus(64));
  JobWatch watch(server_->make_client());
  PodWatch pods(server_->make_client());

  operator_->kill();
  // As they come where no webhook stands before the API server, whose own schema may refuse some.
  std::vector<std::string> hostile;
  for (const std::vector<HostileJob>& jobs : {malformed_jobs(), huge_jobs()}) {
    for (const HostileJob& job : jobs) {
      if (kubectl({"create", "-f", "-"}, job.text).exit_code == 0) {
        hostile.push_back(job.name);
      }
    }
  }
  std::cout << hostile.size() << " hostile jobs" << std::endl;
  ASSERT_NO_FATAL_FAILURE(start_webhook());
  for (std::uint64_t i = 0; i < kills && !HasFailure(); ++i) {
    Result<std::unique_ptr<PlimsollProcess>> started =
        PlimsollProcess::launch("operator", options(), server_->kubeconfig(), server_->directory());
    ASSERT_TRUE(started.ok()) << to_string(started.error());
    operator_ = *std::move(started);
    const auto life = std::chrono::milliseconds(
        std::uniform_int_distribution<int>(kMinLifeMilliseconds, kMaxLifeMilliseconds)(random_));
    const auto death = Steady::now() + life;
    while (Steady::now() < death) {
      ASSERT_NO_FATAL_FAILURE(tend(true));
      std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(
          50ms, std::max<std::chrono::nanoseconds>(0ns, death - Steady::now())));
    }
    EXPECT_TRUE(operator_->running()) << operator_->log();  // it is killed, and never ends by itself
    operator_->kill();
    if (i % 20 == 19) {
      std::cout << i + 1 << " kills, " << next_ << " jobs, " << ended_ << " ended" << std::endl;
    }
  }
  ASSERT_NO_FATAL_FAILURE(start_operator());
  EXPECT_TRUE(eventually(
      "all jobs end",
      [&] {
        tend(false);
        return running_.size();
      },
      0U, 3 * kPatience));
  std::cout << next_ << " jobs, " << watch.made().size() << " attempts" << std::endl;
  for (const auto& [name, job] : running_) {
    ADD_FAILURE() << name << " is stuck: " << story(name);
  }
  EXPECT_THAT(watch.made_twice(), IsEmpty());
  EXPECT_THAT(pods.overlaps(), IsEmpty());
  // A template that no pod can be made of is its author's error, and a model that is too large runs as
  // written.
  for (const std::string& name : hostile) {
    const Json job = wait_for_end(name, 180s);
    EXPECT_TRUE(is_true(job, name.starts_with("huge") ? "Succeeded" : "Failed")) << name << story(name);
    must({"delete", "tj", name, "--wait=false"});
  }
  EXPECT_EQ(foreign_objects(), foreign_);
  if (!foreign_.empty()) {
    must({"delete", "services,jobs,configmaps", "-l", "test=foreign"});
  }
  // What was deleted left nothing behind.
  EXPECT_TRUE(eventually(
      "the children are gone",
      [&] {
        return must({"get", "jobs,services,pods", "-l", "plimsoll.dev/job-name", "-o", "name"}).output;
      },
      ""));
}

}  // namespace
}  // namespace plimsoll::testing
