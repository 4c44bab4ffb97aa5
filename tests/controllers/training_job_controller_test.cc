#include "controllers/training_job_controller.h"

#include <gmock/gmock.h>
#include <prometheus/text_serializer.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>

#include "controllers/job_children.h"
#include "tests/controllers/memory_cluster.h"
#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"

namespace plimsoll::controllers {
namespace {

using plimsoll::testing::eventually;
using plimsoll::testing::MemoryCluster;
using ::testing::Contains;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

Json job(const std::string& namespace_name, const std::string& name) {
  Json object;
  object["apiVersion"] = crds::kApiVersion;
  object["kind"] = "TrainingJob";
  object["metadata"]["name"] = name;
  object["metadata"]["namespace"] = namespace_name;
  object["metadata"]["uid"] = "uid-of-" + name;
  return object;
}

// Which jobs got a pass, and how often.
class Passes {
 public:
  TrainingJobController::Options options() {
    TrainingJobController::Options options;
    options.workers = 1;
    options.reconcile = [this](const PassContext& with, const Json& object) -> Result<RequeueAfter> {
      const std::lock_guard lock(mutex_);
      const std::string name = text_member(object, {"metadata", "name"});
      ++passes_[name];
      pods_[name] = with.find_pods("ads/" + name + "-0").size();
      return RequeueAfter();
    };
    return options;
  }
  int of(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return passes_[name];
  }
  std::size_t pods_of(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return pods_[name];
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> passes_;
  std::map<std::string, std::size_t> pods_;  // of attempt 0, as the last pass saw them
};

Json owned(const std::string& kind, const std::string& name, const std::string& owner_kind,
           const std::string& owner) {
  Json object;
  object["kind"] = kind;
  object["metadata"]["name"] = name;
  object["metadata"]["namespace"] = "ads";
  Json& reference = object["metadata"]["ownerReferences"][0];
  reference["kind"] = owner_kind;
  reference["name"] = owner;
  reference["controller"] = true;
  return object;
}

TEST(TrainingJobController, ChangesOfAJobOfItsChildAndOfItsPodsAreEachAPass) {
  MemoryCluster cluster;
  estimator::ClusterViewStore view;
  Passes passes;
  cluster.put("trainingjobs", job("ads", "one"));
  cluster.put("trainingjobs", job("ads", "other"));
  TrainingJobController controller(cluster, view, nullptr, nullptr, passes.options());
  EXPECT_FALSE(controller.ready());
  controller.start();
  ASSERT_TRUE(eventually("a pass of each job", [&] {
    return controller.ready() && passes.of("one") == 1 && passes.of("other") == 1;
  }));
  cluster.put("jobs", owned("Job", "one-0", "TrainingJob", "one"));
  ASSERT_TRUE(eventually(
      "a pass after a change of the child", [&] { return passes.of("one"); }, 2));
  cluster.put("pods", owned("Pod", "one-0-abcde", "Job", "one-0"));
  ASSERT_TRUE(eventually(
      "a pass after a change of the pod", [&] { return passes.of("one"); }, 3));
  EXPECT_EQ(passes.pods_of("one"), 1U);
  // Of others: a Job without a TrainingJob, and its pod.
  cluster.put("jobs", owned("Job", "backup", "CronJob", "one"));
  cluster.put("pods", owned("Pod", "backup-abcde", "Job", "backup"));
  cluster.put("trainingjobs", job("ads", "last"));
  ASSERT_TRUE(eventually(
      "the pass of the last job", [&] { return passes.of("last"); }, 1));
  controller.stop();
  EXPECT_EQ(passes.of("one"), 3);
  EXPECT_EQ(passes.of("other"), 1) << "its neighbour's changes are none of its own";
}

TEST(TrainingJobController, FollowersMakeNoPass) {
  MemoryCluster cluster;
  estimator::ClusterViewStore view;
  Passes passes;
  std::atomic<int> requested = 0;
  std::atomic<bool> leads = false;
  TrainingJobController::Options options = passes.options();
  options.leads = [&] {
    ++requested;
    return leads.load();
  };
  cluster.put("trainingjobs", job("ads", "one"));
  TrainingJobController controller(cluster, view, nullptr, nullptr, options);
  controller.start();
  ASSERT_TRUE(eventually(
      "the first job is passed over", [&] { return requested.load(); }, 1));
  leads = true;
  cluster.put("trainingjobs", job("ads", "two"));
  ASSERT_TRUE(eventually(
      "the pass of the second job", [&] { return passes.of("two"); }, 1));
  controller.stop();
  EXPECT_EQ(passes.of("one"), 0);
}

TEST(TrainingJobController, HandsTheClustersOwnPatternsToEachPass) {
  MemoryCluster cluster;
  estimator::ClusterViewStore view;
  const Result<remediation::Patterns> own = remediation::Patterns::with_own("- {rule: harmless, text: [a]}");
  ASSERT_TRUE(own);
  std::atomic<const remediation::Patterns*> given = nullptr;
  TrainingJobController::Options options;
  options.workers = 1;
  options.patterns = &*own;
  options.reconcile = [&](const PassContext& with, const Json&) -> Result<RequeueAfter> {
    given = with.patterns;
    return RequeueAfter();
  };
  cluster.put("trainingjobs", job("ads", "one"));
  TrainingJobController controller(cluster, view, nullptr, nullptr, options);
  controller.start();
  ASSERT_TRUE(eventually(
      "the pass", [&] { return given.load() != nullptr; }, true));
  controller.stop();
  EXPECT_EQ(given.load(), &*own);
}

TEST(TrainingJobController, WaitsUntilTheClusterIsKnown) {
  MemoryCluster cluster;
  estimator::ClusterViewStore view;
  Passes passes;
  std::atomic<int> requested = 0;
  TrainingJobController::Options options = passes.options();
  options.cluster_is_known = [&] { return ++requested > 2; };
  cluster.put("trainingjobs", job("ads", "one"));
  TrainingJobController controller(cluster, view, nullptr, nullptr, options);
  controller.start();
  ASSERT_TRUE(eventually(
      "the pass", [&] { return passes.of("one"); }, 1));
  controller.stop();
  EXPECT_EQ(requested, 3) << "asked again, without a change of the job";
}

TEST(UnreadableJobs, AreLeftAloneWithAnEventThatNamesTheField) {
  MemoryCluster cluster;
  estimator::ClusterViewStore view;
  kube::EventRecorder events(cluster, {.component = "test", .instance = "test"});
  events.start();
  Json object = job("ads", "older-than-the-schema");
  object["spec"]["trainers"]["replicas"] = "many";
  PassContext context;
  context.client = &cluster;
  context.cluster = &view;
  context.events = &events;
  const Result<RequeueAfter> next = reconcile(context, object);
  EXPECT_TRUE(next.ok() && !*next);
  EXPECT_TRUE(eventually(
      "an event", [&] { return cluster.names("events"); }, Not(IsEmpty())));
  events.stop(plimsoll::testing::kPatience);
  const Json event = cluster.find("events", cluster.names("events").front()).value_or(Json());
  EXPECT_EQ(event["reason"], "InvalidJob");
  EXPECT_EQ(event["involvedObject"]["uid"], "uid-of-older-than-the-schema");
  EXPECT_THAT(event["message"].asString(), HasSubstr("spec.trainers.replicas"));
}

TEST(ThrowingPasses, EndInAnEventAMetricAndAnotherTryWhileOtherJobsGoOn) {
  MemoryCluster cluster;
  estimator::ClusterViewStore view;
  prometheus::Registry registry;
  kube::EventRecorder events(cluster, {.component = "test", .instance = "test"});
  std::atomic<int> thrown = 0;
  std::atomic<int> looked = 0;
  TrainingJobController::Options options;
  options.workers = 2;
  options.registry = &registry;
  options.reconcile = [&](const PassContext&, const Json& object) -> Result<RequeueAfter> {
    const std::string name = text_member(object, {"metadata", "name"});
    if (name == "bad") {
      ++thrown;
      throw std::runtime_error("no such member");
    }
    if (name == "worse") {
      ++thrown;
      throw 7;
    }
    ++looked;
    return RequeueAfter();
  };
  cluster.put("trainingjobs", job("ads", "bad"));
  cluster.put("trainingjobs", job("ads", "worse"));
  TrainingJobController controller(cluster, view, nullptr, &events, options);
  events.start();
  controller.start();
  EXPECT_TRUE(eventually(
      "both are tried again", [&] { return thrown.load(); }, Ge(6)));
  for (int i = 0; i < 10; ++i) {
    cluster.put("trainingjobs", job("ads", "good-" + std::to_string(i)));
  }
  EXPECT_TRUE(eventually(
      "passes of the good jobs", [&] { return looked.load(); }, Ge(10)));
  EXPECT_TRUE(eventually(
      "two events", [&] { return cluster.names("events"); }, SizeIs(Ge(2U))));
  controller.stop();
  events.stop(plimsoll::testing::kPatience);
  EXPECT_LT(thrown, 100) << "without back-off it would be thousands";
  std::string told;
  for (const std::string& name : cluster.names("events")) {
    told += write_json(cluster.find("events", name).value_or(Json()));
  }
  EXPECT_THAT(told, HasSubstr("ReconcileFailed"));
  EXPECT_THAT(told, HasSubstr("no such member"));
  const std::string metrics = prometheus::TextSerializer().Serialize(registry.Collect());
  EXPECT_THAT(metrics, HasSubstr("controller_runtime_reconcile_panics_total{controller=\"trainingjob\"} "));
  EXPECT_THAT(metrics, Not(HasSubstr("panics_total{controller=\"trainingjob\"} 0")));
}

TEST(TrainingJobController, LeavesTheJobsOfExcludedNamespacesAlone) {
  MemoryCluster cluster;
  estimator::ClusterViewStore view;
  std::mutex mutex;
  std::set<std::string> seen;
  TrainingJobController::Options options;
  options.excluded_namespaces = {"sandbox"};
  options.reconcile = [&](const PassContext&, const Json& object) -> Result<RequeueAfter> {
    const std::lock_guard lock(mutex);
    seen.insert(text_member(object, {"metadata", "namespace"}));
    return RequeueAfter();
  };
  cluster.put("trainingjobs", job("sandbox", "first"));  // before the others in the list and in the queue
  cluster.put("trainingjobs", job("sandbox-2", "second"));
  TrainingJobController controller(cluster, view, nullptr, nullptr, options);
  controller.start();
  EXPECT_TRUE(eventually(
      "the other namespace's pass",
      [&] {
        const std::lock_guard lock(mutex);
        return seen;
      },
      Contains("sandbox-2")));
  controller.stop();
  EXPECT_FALSE(seen.contains("sandbox"));
}

TEST(ThrowingPasses, FourSlowJobsOfOneNamespaceDelayNoOther) {
  MemoryCluster cluster;
  estimator::ClusterViewStore view;
  std::mutex mutex;
  std::condition_variable_any released;
  std::set<std::string> begun;
  bool release = false;
  TrainingJobController::Options options;
  options.workers = 4;
  options.reconcile = [&](const PassContext& with, const Json& object) -> Result<RequeueAfter> {
    std::unique_lock lock(mutex);
    begun.insert(text_member(object, {"metadata", "namespace"}));
    if (text_member(object, {"metadata", "namespace"}) == "greedy") {
      released.wait(lock, with.stop, [&] { return release; });
    }
    return RequeueAfter();
  };
  for (int i = 0; i < 8; ++i) {
    cluster.put("trainingjobs", job("greedy", "slow-" + std::to_string(i)));
  }
  TrainingJobController controller(cluster, view, nullptr, nullptr, options);
  controller.start();
  const auto begun_passes = [&] {
    const std::lock_guard lock(mutex);
    return begun;
  };
  EXPECT_TRUE(eventually("a slow pass begins", begun_passes, Contains("greedy")));
  cluster.put("trainingjobs", job("modest", "quick"));
  EXPECT_TRUE(eventually("the other namespace's pass begins", begun_passes, Contains("modest")));
  {
    const std::lock_guard lock(mutex);
    release = true;
    released.notify_all();
  }
  controller.stop();
}

}  // namespace
}  // namespace plimsoll::controllers
