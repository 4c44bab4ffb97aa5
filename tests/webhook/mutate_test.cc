#include "webhook/mutate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "estimator/trace/import_graph.h"
#include "tests/checkout.h"
#include "tests/webhook/samples.h"

namespace plimsoll::webhook {
namespace {

using testing::patched;
using testing::sample_job;
using testing::sample_review;
using testing::sample_view;
using testing::update_review;

AdmissionRequest request_of(const Json& review) {
  Decoded decoded = decode_review(write_json(review));
  EXPECT_FALSE(decoded.error.has_value()) << decoded.error->message;
  return std::move(decoded.request);
}

Mutation mutated(const Json& review, estimator::ModelSource* tables = nullptr) {
  const auto view = sample_view();
  return mutate(request_of(review), {.cluster = view.get(), .tables = tables});
}

// The job as the API server stores it after its creation.
Json admitted(const Json& job) {
  return patched(job, mutated(sample_review(job)).answer.patch);
}

void expect_untouched(const Mutation& mutation, const char* reason) {
  EXPECT_TRUE(mutation.answer.allowed);
  EXPECT_FALSE(mutation.applied);
  EXPECT_TRUE(mutation.answer.patch.isNull() || mutation.answer.patch.empty());
  EXPECT_EQ(mutation.reason, reason);
  EXPECT_EQ(mutation.gpus_saved, 0);
}

TEST(Mutate, GivesANewJobItsTrainers) {
  const Json job = sample_job();
  const Mutation mutation = mutated(sample_review(job));
  EXPECT_TRUE(mutation.applied);
  EXPECT_EQ(mutation.reason, "Provisioned");
  EXPECT_FALSE(mutation.answer.warnings.empty());
  EXPECT_GT(mutation.gpus_saved, 0);
  const Json after = patched(job, mutation.answer.patch);
  EXPECT_EQ(after["spec"]["trainers"]["replicas"].asInt64(), 128 - mutation.gpus_saved);
  EXPECT_FALSE(text_member(after, {"metadata", "annotations", crds::kDecisionAnnotation}).empty());
  EXPECT_FALSE(text_member(after, {"metadata", "annotations", crds::kReasonAnnotation}).empty());
  EXPECT_EQ(text_member(after, {"metadata", "labels", "team"}), "ranking");
}

TEST(Mutate, ItsOwnResultNeedsNoPatch) {
  const Json after = admitted(sample_job());
  const Mutation again = mutated(sample_review(after));  // reinvoked, or created from a copy
  EXPECT_FALSE(again.applied) << write_json(again.answer.patch);
  EXPECT_EQ(again.gpus_saved, 0);
  EXPECT_TRUE(again.answer.warnings.empty());
  expect_untouched(mutated(update_review(after, after)), "Unchanged");
}

TEST(Mutate, ADryRunIsAnsweredAlikeAndCountsNothing) {
  Json review = sample_review(sample_job());
  const Mutation real = mutated(review);
  review["request"]["dryRun"] = true;
  const Mutation dry = mutated(review);
  EXPECT_EQ(dry.answer.patch, real.answer.patch);
  EXPECT_EQ(dry.answer.warnings, real.answer.warnings);
  EXPECT_EQ(dry.gpus_saved, 0);
}

TEST(Mutate, AppliesAgainWhenTheManifestIsAppliedAgain) {
  const Json before = admitted(sample_job());
  Json now = before;
  now["spec"]["trainers"] = sample_job()["spec"]["trainers"];  // what `kubectl apply` makes of the manifest
  const Mutation mutation = mutated(update_review(before, now));
  EXPECT_TRUE(mutation.applied);
  EXPECT_EQ(patched(now, mutation.answer.patch)["spec"]["trainers"], before["spec"]["trainers"]);
  EXPECT_EQ(mutation.gpus_saved, 0) << "counted when the job was created";
}

TEST(Mutate, AnAppliedManifestDoesNotBringBackASizeThatRanOutOfMemory) {
  Json before = admitted(sample_job());
  const std::int64_t first = before["spec"]["trainers"]["replicas"].asInt64();
  Json& attempt = before["status"]["attempts"][0];
  attempt["number"] = 0;
  attempt["gpuModel"] = before["spec"]["trainers"]["gpuModel"];
  attempt["trainers"] = before["spec"]["trainers"]["replicas"];
  attempt["perNode"] = before["spec"]["trainers"]["perNode"];
  attempt["outcome"] = "CUDAOutOfMemory";
  Json now = before;
  now.removeMember("status");
  now["spec"]["trainers"] = sample_job()["spec"]["trainers"];
  const Mutation mutation = mutated(update_review(before, now));
  EXPECT_TRUE(mutation.applied);
  EXPECT_GT(patched(now, mutation.answer.patch)["spec"]["trainers"]["replicas"].asInt64(), first);
}

TEST(Mutate, DecidesAnewWhenAnInputChanged) {
  const Json before = admitted(sample_job());
  Json larger = before;
  larger["spec"]["model"]["dlrm"]["tables"][0]["rows"] = 400000000;
  const Mutation mutation = mutated(update_review(before, larger));
  EXPECT_TRUE(mutation.applied);
  EXPECT_GT(patched(larger, mutation.answer.patch)["spec"]["trainers"]["replicas"].asInt64(),
            before["spec"]["trainers"]["replicas"].asInt64());

  Json batch = before;
  batch["spec"]["training"]["batchSizePerTrainer"] = 65536;
  EXPECT_NE(mutated(update_review(before, batch)).reason, "Unchanged");
  Json provisioning = before;
  provisioning["spec"]["provisioning"]["minTrainers"] = 64;
  EXPECT_TRUE(mutated(update_review(before, provisioning)).applied);
}

TEST(Mutate, LeavesAloneWhatHasNothingToDoWithIt) {
  const Json before = admitted(sample_job());
  Json labelled = before;
  labelled["metadata"]["labels"]["team"] = "growth";
  labelled["spec"]["suspend"] = true;
  labelled["spec"]["template"]["spec"]["nodeSelector"]["zone"] = "b";
  expect_untouched(mutated(update_review(before, labelled)), "Unchanged");

  Json deleted = before;
  deleted["metadata"]["deletionTimestamp"] = "2026-11-21T08:00:00Z";
  deleted["spec"]["trainers"]["replicas"] = 1;
  expect_untouched(mutated(update_review(before, deleted)), "NothingToDecide");
}

// The controller gives more trainers after an out-of-memory, and says so in the annotation.
TEST(Mutate, DoesNotTakeBackAnExpansion) {
  const Json before = admitted(sample_job());
  Json expanded = before;
  expanded["spec"]["trainers"]["replicas"] = 96;
  expanded["metadata"]["annotations"][crds::kDecisionAnnotation] = R"({"trainers":96})";
  expect_untouched(mutated(update_review(before, expanded)), "Unchanged");
}

TEST(Mutate, RestoresADecisionThatWasDropped) {
  const Json before = admitted(sample_job());
  const Json replaced = sample_job();  // `kubectl replace` with the original manifest
  EXPECT_TRUE(mutated(update_review(before, replaced)).applied);
}

TEST(Mutate, OptsOutByAnnotation) {
  Json job = sample_job();
  job["metadata"]["annotations"][crds::kProvisioningAnnotation] = "disabled";
  expect_untouched(mutated(sample_review(job)), "Disabled");
  EXPECT_TRUE(mutated(sample_review(job)).answer.warnings.empty());
}

TEST(Mutate, LeavesTheJobsOfAnotherControllerAsTheyAre) {
  Json job = sample_job();
  job["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue";
  expect_untouched(mutated(sample_review(job)), "ManagedElsewhere");
  job["spec"]["managedBy"] = crds::kTrainingJobController;
  EXPECT_TRUE(mutated(sample_review(job)).applied);
}

TEST(Mutate, OnlyRecommendsInModeOff) {
  Json job = sample_job();
  job["spec"]["provisioning"]["mode"] = "Off";
  const Mutation mutation = mutated(sample_review(job));
  EXPECT_EQ(patched(job, mutation.answer.patch)["spec"], job["spec"]);
  EXPECT_EQ(mutation.gpus_saved, 0);
}

Mutation mutated_in(std::optional<crds::ProvisioningMode> namespace_mode, const crds::ClusterPolicy& policy,
                    const Json& review) {
  const auto view = sample_view();
  return mutate(
      request_of(review),
      {.cluster = view.get(), .tables = nullptr, .policy = policy, .namespace_mode = namespace_mode});
}

TEST(Mutate, AJobThatNamesNoModeGetsThatOfItsNamespaceOrOfTheCluster) {
  using crds::ProvisioningMode;
  const Json job = sample_job();
  ASSERT_TRUE(job["spec"]["provisioning"]["mode"].isNull());
  const auto mode_in = [&](const Json& of, std::optional<ProvisioningMode> namespace_mode) {
    const Mutation mutation =
        mutated_in(namespace_mode, {.mode = ProvisioningMode::kInitial}, sample_review(of));
    return text_member(patched(of, mutation.answer.patch), {"spec", "provisioning", "mode"});
  };
  EXPECT_EQ(mode_in(job, std::nullopt), "Initial");
  EXPECT_EQ(mode_in(job, ProvisioningMode::kAuto), "Auto");
  Json named = job;
  named["spec"]["provisioning"]["mode"] = "Auto";
  EXPECT_EQ(mode_in(named, ProvisioningMode::kOff), "Auto");
  // In a namespace of advice its size stays.
  const Mutation advised = mutated_in(ProvisioningMode::kOff, {}, sample_review(job));
  EXPECT_EQ(advised.reason, "Recommended");
  EXPECT_EQ(patched(job, advised.answer.patch)["spec"]["trainers"], job["spec"]["trainers"]);
  EXPECT_EQ(advised.gpus_saved, 0);
}

// A later change of the label concerns new jobs.
TEST(Mutate, TheModeThatWasWrittenStaysWhenTheLabelChanges) {
  const Json before = admitted(sample_job());
  EXPECT_EQ(text_member(before, {"spec", "provisioning", "mode"}), "Auto");
  Json now = before;
  now["spec"]["trainers"] = sample_job()["spec"]["trainers"];
  const Mutation mutation = mutated_in(crds::ProvisioningMode::kOff, {}, update_review(before, now));
  EXPECT_EQ(patched(now, mutation.answer.patch)["spec"], before["spec"]);
}

TEST(Mutate, AdviceOnlyChangesNoJobAndSettlesNoMode) {
  for (const char* mode : {"", "Auto", "Initial"}) {
    Json job = sample_job();
    if (*mode != '\0') {
      job["spec"]["provisioning"]["mode"] = mode;
    }
    const Mutation mutation =
        mutated_in(crds::ProvisioningMode::kAuto, {.advice_only = true}, sample_review(job));
    EXPECT_EQ(mutation.reason, "Recommended") << mode;
    const Json after = patched(job, mutation.answer.patch);
    EXPECT_EQ(after["spec"], job["spec"]) << mode;
    EXPECT_FALSE(text_member(after, {"metadata", "annotations", crds::kReasonAnnotation}).empty());
  }
}

TEST(Mutate, LeavesAJobTheClustersShareOfWhatItRequests) {
  const Json job = sample_job();
  const Mutation all = mutated_in(std::nullopt, {.min_share_of_asked = 1}, sample_review(job));
  EXPECT_EQ(patched(job, all.answer.patch)["spec"]["trainers"]["replicas"],
            job["spec"]["trainers"]["replicas"]);
  EXPECT_EQ(all.gpus_saved, 0);
}

TEST(Mutate, AllowsWhatIsNotItsOwn) {
  Json pod = sample_review(sample_job());
  pod["request"]["kind"]["kind"] = "Pod";
  expect_untouched(mutated(pod), "NotATrainingJob");
  Json group = sample_review(sample_job());
  group["request"]["kind"]["group"] = "kubeflow.org";
  expect_untouched(mutated(group), "NotATrainingJob");
  Json status = sample_review(sample_job(), "UPDATE");
  status["request"]["subResource"] = "status";
  expect_untouched(mutated(status), "NotATrainingJob");
  expect_untouched(mutated(sample_review(Json(), "DELETE")), "NothingToDecide");
  expect_untouched(mutated(sample_review(sample_job(), "CONNECT")), "NothingToDecide");
}

TEST(Mutate, KeepsTheUsersValuesAndWarnsWhenThereIsNoGpu) {
  const estimator::ClusterView empty;
  const Mutation mutation =
      mutate(request_of(sample_review(sample_job())), {.cluster = &empty, .tables = nullptr});
  expect_untouched(mutation, "NoGPUInCluster");
  EXPECT_FALSE(mutation.answer.warnings.empty());
}

TEST(Mutate, KeepsTheUsersValuesAndWarnsWhenNothingFits) {
  Json job = sample_job();
  job["spec"]["model"]["dlrm"]["tables"][0]["rows"] = 1000000000000;
  const Mutation mutation = mutated(sample_review(job));
  expect_untouched(mutation, "NoFittingGPU");
  EXPECT_FALSE(mutation.answer.warnings.empty());
}

// Llama 3 8B whole on each trainer, which no card holds.
TEST(Mutate, NamesSwapTrainingWhereTheJobAsksForItAndItIsOff) {
  Json job = sample_job();
  job["spec"]["model"] = *parse_json(
      R"({"family": "llm", "transformer": {"layers": 32, "hidden": 4096, "heads": 32, "kvHeads": 8, "ffn": 14336,
          "vocab": 128256, "seqLen": 2048}})");
  job["spec"]["training"] =
      *parse_json(R"({"batchSizePerTrainer": 1, "precision": "BF16Mixed", "optimizer": "AdamW"})");
  job["spec"]["provisioning"]["placement"] = "HBMOrSwap";
  const auto view = sample_view();
  const auto names_the_gate = [&](const crds::FeatureGates& gates) {
    const Mutation mutation =
        mutate(request_of(sample_review(job)), {.cluster = view.get(), .policy = {.gates = gates}});
    const auto& warnings = mutation.answer.warnings;
    return std::any_of(warnings.begin(), warnings.end(), [](const std::string& warning) {
      return warning.find("the feature gate SwapTraining is off") != std::string::npos;
    });
  };
  EXPECT_FALSE(names_the_gate({}));
  EXPECT_TRUE(names_the_gate(*crds::FeatureGates::parse({"SwapTraining=false"})));
}

TEST(Mutate, DeniesAJobThatFitsNowhereWhereItsOwnerWantsThat) {
  Json job = sample_job();
  job["spec"]["model"]["dlrm"]["tables"][0]["rows"] = 1000000000000;
  job["spec"]["provisioning"]["onUnfit"] = "Deny";
  const Mutation mutation = mutated(sample_review(job));
  EXPECT_FALSE(mutation.answer.allowed);
  EXPECT_EQ(mutation.answer.code, 403);
  EXPECT_NE(mutation.answer.message.find("no allowed GPU"), std::string::npos) << mutation.answer.message;
  EXPECT_NE(mutation.answer.message.find("onUnfit is Deny"), std::string::npos);
  EXPECT_EQ(mutation.reason, "Denied");
  EXPECT_FALSE(mutation.applied);

  const estimator::ClusterView empty;  // it may grow: whether the job fits is not known
  EXPECT_TRUE(mutate(request_of(sample_review(job)), {.cluster = &empty, .tables = nullptr}).answer.allowed);
  job["spec"]["model"] = sample_job()["spec"]["model"];
  EXPECT_TRUE(mutated(sample_review(job)).applied);
}

TEST(Mutate, KeepsTheUsersValuesAndWarnsWhenTheGraphCannotBeRead) {
  Json job = sample_job();
  job["spec"]["model"].removeMember("dlrm");
  Json& reference = job["spec"]["model"]["graph"]["configMapKeyRef"];
  reference["name"] = "graphs";
  reference["key"] = "model.json.gz";
  const Mutation mutation = mutated(sample_review(job));
  expect_untouched(mutation, "GraphUnavailable");
  EXPECT_FALSE(mutation.answer.warnings.empty());
}

TEST(Mutate, KeepsTheUsersValuesWhenTheTimeIsOver) {
  const auto view = sample_view();
  Budget budget({.deadline = std::chrono::steady_clock::now()});
  const Mutation mutation = mutate(request_of(sample_review(sample_job())),
                                   {.cluster = view.get(), .tables = nullptr, .budget = &budget});
  expect_untouched(mutation, "DeadlineExceeded");
  EXPECT_FALSE(mutation.answer.warnings.empty());
}

// Gives the tables it holds, or the error.
class FixedTables : public estimator::ModelSource {
 public:
  explicit FixedTables(Result<estimator::SharedTables> answer) : answer_(std::move(answer)) {}
  Result<estimator::SharedTables> tables(const std::string& namespace_name, const crds::TablesFrom& from,
                                         Budget*) override {
    requested = namespace_name + "/" + from.config_map_name + "/" + from.key;
    return answer_;
  }
  Result<estimator::SharedGraph> graph(const std::string&, const crds::GraphReference&, Budget*) override {
    return Error(ErrorCode::kUnavailable, "there are no graphs here");
  }
  Result<estimator::SharedText> text(const std::string&, const std::string&, const std::string&,
                                     Budget*) override {
    return Error(ErrorCode::kUnavailable, "there are no texts here");
  }
  std::string requested;

 private:
  Result<estimator::SharedTables> answer_;
};

Json job_with_tables_from() {
  Json job = sample_job();
  Json& dlrm = job["spec"]["model"]["dlrm"];
  dlrm.removeMember("tables");
  dlrm["tablesFrom"]["configMapKeyRef"]["name"] = "ads-tables";
  dlrm["tablesFrom"]["configMapKeyRef"]["key"] = "tables.csv";
  return job;
}

TEST(Mutate, ReadsTheTablesFromAConfigMap) {
  std::vector<crds::EmbeddingTable> tables(2);
  tables[0] = {.name = "big", .count = 20, .rows = 200000000, .dim = 128, .pooling_factor = 10};
  tables[1] = {.name = "small", .count = 20, .rows = 1000000, .dim = 128, .pooling_factor = 1.5};
  FixedTables source(
      estimator::SharedTables(std::make_shared<const std::vector<crds::EmbeddingTable>>(tables)));
  const Json job = job_with_tables_from();
  const Mutation mutation = mutated(sample_review(job), &source);
  EXPECT_EQ(source.requested, "ads/ads-tables/tables.csv");
  EXPECT_TRUE(mutation.applied);
  // As if the tables stood in the job.
  EXPECT_EQ(patched(job, mutation.answer.patch)["spec"]["trainers"],
            admitted(sample_job())["spec"]["trainers"]);
}

// Gives the graph it holds, or the error.
class FixedGraph : public FixedTables {
 public:
  explicit FixedGraph(Result<estimator::SharedGraph> graph)
      : FixedTables(estimator::SharedTables()), graph_(std::move(graph)) {}
  Result<estimator::SharedGraph> graph(const std::string&, const crds::GraphReference&, Budget*) override {
    return graph_;
  }

 private:
  Result<estimator::SharedGraph> graph_;
};

Json job_with_a_graph() {
  Json job = sample_job();
  job["spec"]["model"].removeMember("dlrm");
  job["spec"]["model"]["graph"]["configMapKeyRef"]["name"] = "gpt";
  job["spec"]["model"]["graph"]["configMapKeyRef"]["key"] = "graph.json.gz";
  return job;
}

TEST(Mutate, SizesAGraphFromAConfigMap) {
  std::ifstream file(PLIMSOLL_SOURCE_DIR "/tests/estimator/graphs/linear.json");
  std::stringstream text;
  text << file.rdbuf();
  std::string cuda = text.str();
  cuda.replace(cuda.find("\"cpu\""), 5, "\"cuda\"");
  Json job = job_with_a_graph();
  job["spec"]["training"]["precision"] = "FP32";
  Result<estimator::TraceFile> read = estimator::import_traces(cuda);
  ASSERT_TRUE(read.ok()) << read.error().message;
  FixedGraph source(estimator::SharedGraph(std::make_shared<const estimator::TraceFile>(*std::move(read))));
  const Mutation mutation = mutated(sample_review(job), &source);
  EXPECT_TRUE(mutation.applied) << mutation.message;
  FixedGraph missing(Error(ErrorCode::kNotFound, "there is no ConfigMap ads/gpt"));
  expect_untouched(mutated(sample_review(job), &missing), "GraphUnavailable");
}

TEST(Mutate, KeepsTheUsersValuesAndWarnsWithoutTheTables) {
  FixedTables source(Error(ErrorCode::kNotFound, "there is no ConfigMap ads/ads-tables"));
  const Mutation mutation = mutated(sample_review(job_with_tables_from()), &source);
  expect_untouched(mutation, "TablesUnavailable");
  ASSERT_EQ(mutation.answer.warnings.size(), 1U);
  EXPECT_NE(mutation.answer.warnings[0].find("ads/ads-tables"), std::string::npos);
  expect_untouched(mutated(sample_review(job_with_tables_from())), "TablesUnavailable");
}

}  // namespace
}  // namespace plimsoll::webhook
