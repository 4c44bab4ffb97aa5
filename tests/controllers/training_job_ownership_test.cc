// What is not the job's stays as it is, whatever its name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/yaml.h"
#include "controllers/job_children.h"
#include "controllers/training_job_executor.h"
#include "tests/controllers/job_world.h"

namespace plimsoll::controllers {
namespace {

using crds::JobStatus;
using crds::Outcome;
using plimsoll::testing::job_yaml;
using plimsoll::testing::JobWorld;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Holder {
  const char* name;
  const char* metadata;  // besides the name, as YAML in flow style
};

const Holder kHolders[] = {
    {"AnotherController",
     "ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: kafka, uid: 1-2-3, controller: "
     "true}]"},
    {"AnotherControllerWithOurLabels",
     "ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: kafka, uid: 1-2-3, controller: "
     "true}], "
     "labels: {app.kubernetes.io/managed-by: plimsoll, plimsoll.dev/job-name: kafka, plimsoll.dev/attempt: "
     "'0', "
     "kueue.x-k8s.io/queue-name: research}"},
    {"AnotherTrainingJob",
     "ownerReferences: [{apiVersion: plimsoll.dev/v1alpha1, kind: TrainingJob, name: other, uid: 1-2-3, "
     "controller: true}]"},
    {"AnOwnerThatIsNoController",
     "ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: kafka, uid: 1-2-3}]"},
    {"Nobody", "labels: {app: kafka}"},
    {"NobodyWithoutLabels", "annotations: {a: b}"},
    {"NobodyWithSomeOfOurLabels", "labels: {plimsoll.dev/job-name: kafka}"},
    {"NobodyWithLabelsOfAnotherAttempt",
     "labels: {app.kubernetes.io/managed-by: plimsoll, plimsoll.dev/job-name: kafka, "
     "plimsoll.dev/attempt: '77'}"},
};

class TrainingJobOwnership : public ::testing::TestWithParam<Holder> {
 protected:
  void create(const kube::Resource& resource, const std::string& kind, const std::string& name,
              const std::string& rest) {
    const Result<std::vector<Json>> object = parse_yaml_documents(
        "apiVersion: " +
        (resource.group.empty() ? resource.version : resource.group + "/" + resource.version) + "\nkind: " +
        kind + "\nmetadata: {name: " + name + ", namespace: default, " + GetParam().metadata + "}\n" + rest);
    ASSERT_TRUE(object.ok()) << to_string(object.error());
    const Result<Json> made = world_.client().create(resource, "default", object->front());
    ASSERT_TRUE(made.ok()) << to_string(made.error());
    foreign_.push_back({resource, *made});
  }

  // The names of the first three attempts.
  void take_names() {
    for (const char* name : {"kafka-0", "kafka-1", "kafka-2"}) {
      create(kServices, "Service", name, "spec: {selector: {app: kafka}, ports: [{port: 9092}]}\n");
    }
    create(kJobs, "Job", "kafka-0",
           "spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\n");
    create(kConfigMaps, "ConfigMap", "kafka-0-plan", "data: {plan.json: '{}'}\n");
  }

  void expect_untouched() {
    for (const auto& [resource, object] : foreign_) {
      const std::string name = text_member(object, {"metadata", "name"});
      const Result<Json> now = world_.client().get(resource, "default", name);
      ASSERT_TRUE(now.ok()) << resource.plural << " " << name << ": " << to_string(now.error());
      EXPECT_EQ(write_json(*now), write_json(object));  // uid and resourceVersion among the rest
    }
  }

  std::string reason(const char* type) {
    const JobStatus status = world_.status("kafka");
    const crds::Condition* condition = status.find(type);
    return condition == nullptr ? "" : condition->reason;
  }

  JobWorld world_;
  std::vector<std::pair<kube::Resource, Json>> foreign_;
};

// Row 4 of the attacks: after three attempts the operator deleted Services, Job and ConfigMap of others.
TEST_P(TrainingJobOwnership, ObjectsOfOthersWithTheNamesOfChildrenAreNeverTouched) {
  ASSERT_NO_FATAL_FAILURE(take_names());
  world_.create(job_yaml("kafka"));
  ASSERT_TRUE(world_.look("kafka").ok());
  EXPECT_EQ(reason("Running"), "NameTaken");
  EXPECT_THAT(
      world_.status("kafka").attempts[0].message,
      AllOf(HasSubstr("is taken by an object that is not this job's"), HasSubstr("Delete or rename")));
  world_.settle("kafka");
  ASSERT_EQ(world_.status("kafka").attempts.size(), 4U);
  EXPECT_FALSE(world_.child("kafka-3").isNull());
  EXPECT_TRUE(world_.child("kafka-1").isNull());
  expect_untouched();

  world_.patch("kafka", R"({"spec":{"suspend":true}})");
  world_.settle("kafka");
  world_.patch("kafka", R"({"spec":{"suspend":false}})");
  world_.settle("kafka");
  EXPECT_TRUE(world_.child("kafka-3").isNull());
  // So many attempts that the children of those that could not be made are to be deleted.
  for (int attempt = 4; attempt < 7; ++attempt) {
    const std::string child = "kafka-" + std::to_string(attempt);
    ASSERT_FALSE(world_.child(child).isNull()) << child;
    world_.preempt(child, false);
    world_.settle("kafka");
  }
  expect_untouched();
  // As the last attempt starts, a stranger takes its Job's name.
  world_.erase_child("kafka-7");
  ASSERT_NO_FATAL_FAILURE(
      create(kJobs, "Job", "kafka-7",
             "spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\n"));
  world_.patch("kafka", R"({"spec":{"activeDeadlineSeconds":60,"ttlSecondsAfterFinished":60}})");
  world_.pass(std::chrono::hours(24 * 365 * 30));
  ASSERT_TRUE(world_.look("kafka").ok());
  EXPECT_EQ(reason("Failed"), "DeadlineExceeded");
  expect_untouched();
  world_.pass(std::chrono::seconds(120));
  ASSERT_TRUE(world_.look("kafka").ok());
  EXPECT_TRUE(world_.job("kafka").isNull());
  expect_untouched();
}

TEST_P(TrainingJobOwnership, AStrangerThatTookTheNameOfARunningAttemptSurvivesSuspension) {
  world_.create(job_yaml("kafka"));
  world_.settle("kafka");
  world_.erase_child("kafka-0");
  ASSERT_NO_FATAL_FAILURE(
      create(kJobs, "Job", "kafka-0",
             "spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\n"));
  world_.patch("kafka", R"({"spec":{"suspend":true}})");
  world_.settle("kafka");
  EXPECT_EQ(world_.status("kafka").attempts[0].outcome, Outcome::kSuspended);
  expect_untouched();
}

INSTANTIATE_TEST_SUITE_P(Holders, TrainingJobOwnership, ::testing::ValuesIn(kHolders),
                         [](const auto& holder) { return holder.param.name; });

}  // namespace
}  // namespace plimsoll::controllers
