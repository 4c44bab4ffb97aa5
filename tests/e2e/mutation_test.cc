// What comes back from the API server when a job is written, by every way that people write one.
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <tuple>

#include "tests/e2e/main_job.h"

namespace plimsoll::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// One installation for all tests of this suite, each of which deletes its jobs.
class MutationTest : public MainJobTest {
 protected:
  void SetUp() override {
    if (shared_ == nullptr) {
      MainJobTest::SetUp();
      if (IsSkipped() || HasFatalFailure()) {
        return;
      }
      ASSERT_NO_FATAL_FAILURE(start_plimsoll());
      shared_ = std::make_unique<Installation>(Installation{server_, operator_, webhook_});
    }
    std::tie(server_, operator_, webhook_) = *shared_;
  }

  void TearDown() override {
    if (shared_ != nullptr) {
      must({"delete", "trainingjobs.plimsoll.dev", "--all"});
    }
  }

  static void TearDownTestSuite() { shared_.reset(); }

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

 private:
  using Installation = std::tuple<std::shared_ptr<ApiServer>, std::shared_ptr<PlimsollProcess>,
                                  std::shared_ptr<PlimsollProcess>>;
  static inline std::unique_ptr<Installation> shared_;
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

TEST_F(MutationTest, AMisspeltFieldOfTheTemplateIsWarnedOfAndKept) {
  const CommandResult applied =
      must({"apply", "-f", "-"}, small_job("ads") + "      terminationGracePeriodSecond: 5\n");
  EXPECT_THAT(applied.errors,
              HasSubstr("Warning: spec.template.spec.terminationGracePeriodSecond: unknown field; "
                        "did you mean terminationGracePeriodSeconds?"));
  EXPECT_EQ(job("ads")["spec"]["template"]["spec"]["terminationGracePeriodSecond"].asInt(), 5);
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

TEST_F(MutationTest, WhatFitsNowhereIsRejectedWhereThePolicySaysSo) {
  std::string manifest = small_job("ads", 16, "  provisioning: {onUnfit: Deny}\n");
  const std::string rows = "rows: 20000000";
  manifest.replace(manifest.find(rows), rows.size(), "rows: 900000000000");
  const CommandResult applied = kubectl({"apply", "-f", "-"}, manifest);
  EXPECT_NE(applied.exit_code, 0);
  EXPECT_THAT(applied.errors, HasSubstr("provisioning.onUnfit is Deny"));
  EXPECT_THAT(applied.errors, Not(HasSubstr("keeps its")));
  EXPECT_TRUE(job("ads").isNull());
}

TEST_F(MutationTest, WhatFitsNowhereIsToldWhatWouldFit) {
  std::string manifest = small_job("gpt", 4, "  provisioning: {maxTrainers: 4}\n");
  const std::size_t model = manifest.find("    dlrm:\n");
  manifest.replace(
      model, manifest.find("  training:") - model,
      "    transformer: {layers: 48, hidden: 2048, heads: 16, ffn: 8192, vocab: 50257, seqLen: 2048}\n");
  const std::string batch = "batchSizePerTrainer: 1024";
  manifest.replace(manifest.find(batch), batch.size(),
                   "batchSizePerTrainer: 8, optimizer: AdamW, parallelism: {strategy: DDP}");
  const CommandResult applied = must({"apply", "-f", "-"}, manifest);
  EXPECT_THAT(applied.errors, ContainsRegex("Warning: fits [0-9]+ x [A-Z0-9-]+ with training\\."));
  EXPECT_TRUE(decision_of(job("gpt")).isNull());
}

TEST_F(MutationTest, AGlobalBatchIsKeptAndTheShareRecorded) {
  std::string manifest = small_job("ads");
  const std::string batch = "batchSizePerTrainer: 1024";
  manifest.replace(manifest.find(batch), batch.size(), "globalBatchSize: 16384");
  must({"apply", "-f", "-"}, manifest);
  const Json sized = job("ads");
  const Json decision = decision_of(sized);
  EXPECT_EQ(decision["batchSizePerTrainer"].asInt64() * replicas_of(sized), 16384);
  EXPECT_EQ(decision["gradientAccumulation"].asInt64(), 1);
  EXPECT_EQ(sized["spec"]["training"]["globalBatchSize"].asInt64(), 16384);
}

TEST_F(MutationTest, TheRequiredThroughputIsReachedAndToldBesideTheRequested) {
  const CommandResult fewest = must({"apply", "-f", "-"}, small_job("fewest"));
  EXPECT_THAT(fewest.errors,
              ContainsRegex("Warning: 1 x V100-32GB take about .* samples a second.*the requested 16 x"));
  must({"apply", "-f", "-"}, small_job("fast", 16, "  provisioning: {minThroughput: 50%}\n"));
  EXPECT_GT(replicas_of(job("fast")), 1);
  const CommandResult wrong =
      kubectl({"apply", "-f", "-"}, small_job("wrong", 16, "  provisioning: {minThroughput: fast}\n"));
  EXPECT_NE(wrong.exit_code, 0);
  EXPECT_THAT(wrong.errors, HasSubstr("spec.provisioning.minThroughput"));
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
  const auto count = [&](const std::string& series) {
    const std::string metrics = http_get(webhook_->ops_port(), "/metrics");
    const std::size_t line = metrics.find("\n" + series + " ");
    return line == std::string::npos ? 0 : std::stoi(metrics.substr(line + series.size() + 2));
  };
  const std::string admissions =
      R"(plimsoll_admission_requests_total{applied="true",reason="Provisioned",webhook="mutate"})";
  const std::string saved = "plimsoll_admission_gpus_saved_total";
  const int admissions_before = count(admissions);
  const int saved_before = count(saved);
  must({"apply", "-f", "-"}, small_job("ads"));
  EXPECT_EQ(count(admissions), admissions_before + 1);
  EXPECT_EQ(count(saved), saved_before + 15);
}

}  // namespace
}  // namespace plimsoll::testing
