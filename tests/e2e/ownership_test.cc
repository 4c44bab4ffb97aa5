// Objects of others that have the names of a job's children (row 4 of the attacks: they were deleted).
#include <gmock/gmock.h>

#include "tests/e2e/training_stage.h"
#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

class OwnershipTest : public TrainingTest {
 protected:
  // kind/name, uid and resourceVersion of what is not the job's.
  std::string foreign_objects() const {
    return must({"get", "services,jobs,configmaps", "-l", "test=foreign", "-o",
                 "jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.uid} "
                 "{.metadata.resourceVersion}{\"\\n\"}{end}"})
        .output;
  }

  void expect_untouched(const std::string& when) { EXPECT_EQ(foreign_objects(), before_) << when; }

  std::string before_;
};

TEST_F(OwnershipTest, ObjectsOfOthersWithTheNamesOfChildrenAreNeverTouched) {
  for (int i = 0; i < 2; ++i) {
    add_node("a100-" + std::to_string(i));
  }
  ASSERT_NO_FATAL_FAILURE(start_operator());
  ASSERT_NO_FATAL_FAILURE(wait_for_gpus(16));
  ASSERT_NO_FATAL_FAILURE(start_webhook());
  // The garbage collector wants owners that exist.
  must({"create", "configmap", "kafka-operator"});
  const std::string owner = text_member(get("configmap", "kafka-operator"), {"metadata", "uid"});
  const std::string owned =
      ", ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: kafka-operator, uid: " + owner +
      ", controller: true}]";
  const std::string ours =
      ", app.kubernetes.io/managed-by: plimsoll, plimsoll.dev/job-name: kafka, plimsoll.dev/attempt: '0'";
  const auto service = [&](const std::string& name, const std::string& labels, const std::string& metadata) {
    return "apiVersion: v1\nkind: Service\nmetadata: {name: " + name + ", labels: {test: foreign" + labels +
           "}" + metadata + "}\nspec: {selector: {app: kafka}, ports: [{port: 9092}]}\n---\n";
  };
  must({"create", "-f", "-"},
       service("kafka-0", "", owned) + service("kafka-1", ", app: kafka", "") +
           service("kafka-2", ours, owned) +
           "apiVersion: batch/v1\nkind: Job\nmetadata: {name: kafka-0, labels: {test: foreign}" + owned +
           "}\nspec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: "
           "none}]}}}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: kafka-0-plan, labels: {test: "
           "foreign" +
           ours + "}}\ndata: {plan.json: '{}'}\n");
  must({"wait", "--for=condition=Suspended", "job/kafka-0", kubectl_timeout()});
  before_ = foreign_objects();
  EXPECT_THAT(before_, HasSubstr("Job/kafka-0"));

  must({"create", "-f", "-"},
       TrainingJobManifest{.name = "kafka",
                           .annotations = {{"outcome", "run"}},
                           .more = "  activeDeadlineSeconds: 40\n  ttlSecondsAfterFinished: 3\n"}
           .text());
  Json job = wait_for("kafka", [](const Json& now) { return attempts_of(now).size() == 1; });
  job = wait_for("kafka", [](const Json& now) { return why(now, "Running").starts_with("NameTaken"); });
  EXPECT_THAT(why(job, "Running"), HasSubstr("Delete or rename that object")) << story("kafka");
  EXPECT_THAT(kubectl({"get", "events"}).output, HasSubstr("NameTaken"));
  job = wait_for(
      "kafka", [](const Json& now) { return is_true(now, "Running"); }, 180s);
  ASSERT_TRUE(is_true(job, "Running")) << story("kafka");
  EXPECT_EQ(attempts_of(job).size(), 4U);
  expect_untouched("after three attempts");
  for (int attempt = 4; attempt < 6; ++attempt) {
    set_suspended("kafka", true);
    job = wait_for("kafka", [](const Json& now) { return is_true(now, "Suspended"); });
    EXPECT_TRUE(is_true(job, "Suspended")) << story("kafka");
    set_suspended("kafka", false);
    job = wait_for("kafka",
                   [&](const Json& now) { return static_cast<int>(attempts_of(now).size()) == attempt + 1; });
    EXPECT_EQ(static_cast<int>(attempts_of(job).size()), attempt + 1) << story("kafka");
  }
  expect_untouched("after suspend and resume");
  job = wait_for(
      "kafka", [](const Json& now) { return now.isNull(); }, 120s);
  EXPECT_TRUE(job.isNull()) << story("kafka");
  EXPECT_TRUE(eventually(
      "the children are gone",
      [&] {
        return must({"get", "jobs,pods,services,configmaps", "-l",
                     "plimsoll.dev/job-name=kafka,test!=foreign", "-o", "name"})
            .output;
      },
      ""));
  expect_untouched("after deadline and time to live");
}

}  // namespace
}  // namespace plimsoll::testing
