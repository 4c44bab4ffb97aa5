// What comes back from the API server when a job is written, by every way that people write one.
#include <gmock/gmock.h>

#include "tests/e2e/main_job.h"

namespace plimsoll::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class MutationTest : public MainJobTest {
 protected:
  void SetUp() override {
    MainJobTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) {
      start_plimsoll();
    }
  }

  // One GPU holds it, and of the two models the cheaper one does.
  static void expect_sized(const Json& job) {
    EXPECT_EQ(replicas_of(job), 1);
    EXPECT_EQ(text_member(job, {"spec", "trainers", "gpuModel"}), "V100-32GB");
    const Json& pod = job["spec"]["template"]["spec"];
    EXPECT_EQ(text_member(pod, {"nodeSelector", "nvidia.com/gpu.product"}), "Tesla-V100-SXM2-32GB");
    EXPECT_EQ(pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"].asString(), "1");
    EXPECT_THAT(annotation(job, "requested-trainers"), HasSubstr("16"));
    EXPECT_EQ(decision_of(job)["trainers"].asInt(), 1);
    EXPECT_FALSE(annotation(job, "provisioning-reason").empty());
  }
};

TEST_F(MutationTest, ApplySizesTheJobAndApplyingAgainChangesNothing) {
  must({"apply", "-f", "-"}, small_job("ads"));
  const Json first = job("ads");
  expect_sized(first);
  must({"apply", "-f", "-"}, small_job("ads"));
  const Json second = job("ads");
  EXPECT_EQ(write_json(second["spec"]), write_json(first["spec"]));
  EXPECT_EQ(write_json(second["metadata"]["annotations"]), write_json(first["metadata"]["annotations"]));
  EXPECT_EQ(second["metadata"]["generation"], first["metadata"]["generation"]);
}

TEST_F(MutationTest, PeopleSeeWhatWasAskedAndGiven) {
  must({"apply", "-f", "-"}, small_job("ads"));
  EXPECT_THAT(must({"get", "trainingjob", "ads"}).output, ContainsRegex("ads +16 +V100-32GB +1 +Auto"));
}

TEST_F(MutationTest, ServerSideApplyDoesTheSame) {
  must({"apply", "--server-side", "-f", "-"}, small_job("ads"));
  const Json first = job("ads");
  expect_sized(first);
  must({"apply", "--server-side", "-f", "-"}, small_job("ads"));
  const Json second = job("ads");
  EXPECT_EQ(write_json(second["spec"]), write_json(first["spec"]));
  EXPECT_EQ(write_json(second["metadata"]["annotations"]), write_json(first["metadata"]["annotations"]));
}

TEST_F(MutationTest, CreateDoesTheSame) {
  must({"create", "-f", "-"}, small_job("ads"));
  expect_sized(job("ads"));
}

TEST_F(MutationTest, ADryRunShowsTheDecisionAndLeavesNothing) {
  const CommandResult shown = must({"create", "--dry-run=server", "-o", "json", "-f", "-"}, small_job("ads"));
  const Result<Json> object = parse_json(shown.output);
  ASSERT_TRUE(object.ok());
  expect_sized(*object);
  EXPECT_TRUE(job("ads").isNull());
}

TEST_F(MutationTest, AnEditOfSomethingElseKeepsTheDecision) {
  must({"apply", "-f", "-"}, small_job("ads"));
  const Json before = job("ads");
  must({"label", "trainingjob", "ads", "team=ranking"});
  const Json after = job("ads");
  EXPECT_EQ(write_json(after["spec"]), write_json(before["spec"]));
  EXPECT_EQ(annotation(after, "provisioning-decision"), annotation(before, "provisioning-decision"));
}

TEST_F(MutationTest, AnOptOutLeavesTheJobAsItIs) {
  std::string manifest = small_job("ads");
  const std::string name = "  name: ads\n";
  manifest.insert(manifest.find(name) + name.size(),
                  "  annotations: {plimsoll.dev/provisioning: disabled}\n");
  const CommandResult applied = must({"apply", "-f", "-"}, manifest);
  EXPECT_THAT(applied.errors, Not(HasSubstr("Warning")));
  EXPECT_EQ(replicas_of(job("ads")), 16);
  EXPECT_TRUE(decision_of(job("ads")).isNull());
}

TEST_F(MutationTest, ModeOffRecommendsOnly) {
  must({"apply", "-f", "-"}, small_job("ads", 16, "  provisioning: {mode: \"Off\"}\n"));
  EXPECT_EQ(replicas_of(job("ads")), 16);
  EXPECT_EQ(decision_of(job("ads"))["trainers"].asInt(), 1);
}

TEST_F(MutationTest, WhatFitsNowhereKeepsItsValuesAndWarns) {
  std::string manifest = small_job("ads");
  const std::string rows = "rows: 20000000";
  manifest.replace(manifest.find(rows), rows.size(), "rows: 900000000000");
  const CommandResult applied = must({"apply", "-f", "-"}, manifest);
  EXPECT_THAT(applied.errors, HasSubstr("Warning:"));
  EXPECT_EQ(replicas_of(job("ads")), 16);
  EXPECT_TRUE(decision_of(job("ads")).isNull());
}

TEST_F(MutationTest, TheUsersOwnSelectorsStay) {
  const std::string selector = "      nodeSelector: {team: ranking}\n";
  must({"apply", "-f", "-"}, small_job("ads", 16, selector));
  const Json sized = job("ads");
  const Json& node_selector = sized["spec"]["template"]["spec"]["nodeSelector"];
  EXPECT_EQ(text_member(node_selector, {"team"}), "ranking");
  EXPECT_EQ(text_member(node_selector, {"nvidia.com/gpu.product"}), "Tesla-V100-SXM2-32GB");
}

TEST_F(MutationTest, TablesComeFromAConfigMap) {
  const std::string config_map =
      "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: tables, namespace: default}\ndata:\n  tables.csv: "
      "|\n"
      "    name,rows,dim,pooling_factor\n    user,20000000,64,1\n    item,5000000,64,20\n";
  std::string manifest = small_job("ads");
  const std::size_t tables = manifest.find("      tables:\n");
  manifest.replace(tables, manifest.find("  training:") - tables,
                   "      tablesFrom: {configMapKeyRef: {name: tables, key: tables.csv}}\n");
  const CommandResult without = must({"apply", "-f", "-"}, manifest);
  EXPECT_THAT(without.errors, HasSubstr("Warning:"));
  EXPECT_THAT(without.errors, HasSubstr("tables"));
  EXPECT_EQ(replicas_of(job("ads")), 16);

  must({"apply", "-f", "-"}, config_map);
  must({"delete", "trainingjob", "ads"});
  must({"apply", "-f", "-"}, manifest);
  expect_sized(job("ads"));
}

TEST_F(MutationTest, TheValidatingWebhookNamesTheField) {
  // Two tables of one name: each list entry is well-formed, so the schema has nothing to say.
  std::string manifest = small_job("ads");
  const std::string item = "name: item";
  manifest.replace(manifest.find(item), item.size(), "name: user");
  const CommandResult refused = kubectl({"apply", "-f", "-"}, manifest);
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.errors, HasSubstr("spec.model.dlrm.tables"));
  EXPECT_TRUE(job("ads").isNull());
}

TEST_F(MutationTest, MetricsCountTheAdmissions) {
  must({"apply", "-f", "-"}, small_job("ads"));
  const std::string metrics = http_get(webhook_->ops_port(), "/metrics");
  EXPECT_THAT(
      metrics,
      HasSubstr(
          "plimsoll_admission_requests_total{applied=\"true\",reason=\"Provisioned\",webhook=\"mutate\"}"));
  EXPECT_THAT(metrics, HasSubstr("plimsoll_admission_gpus_saved_total 15"));
}

}  // namespace
}  // namespace plimsoll::testing
