#include <gmock/gmock.h>

#include "tests/cli/run_command.h"
#include "tests/cli/temporary_file.h"

namespace plimsoll::cli {
namespace {

using plimsoll::testing::kCluster;
using plimsoll::testing::kDescription;
using plimsoll::testing::kJob;
using plimsoll::testing::kPyTorchJob;
using plimsoll::testing::Outcome;
using plimsoll::testing::run;
using plimsoll::testing::source_file;
using plimsoll::testing::TemporaryFile;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class ProvisionCommand : public ::testing::Test {
 protected:
  Outcome provision(std::vector<std::string> arguments, const std::string& input = kJob) {
    // The job requests many times what holds it.
    arguments.insert(arguments.begin(),
                     {"-f", "-", "--cluster", cluster_.path(), "--min-share-of-asked", "0%"});
    return run(run_provision, arguments, input);
  }

  const TemporaryFile cluster_{kCluster};
};

TEST_F(ProvisionCommand, KeepsTheJsonContract) {
  const Outcome outcome = provision({"-o", "json"});
  EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
  const Json json = outcome.json();
  EXPECT_EQ(json["job"].asString(), "team/ads");
  EXPECT_EQ(json["decision"]["gpuModel"].asString(), "A100-80GB");
  EXPECT_LT(json["decision"]["trainers"].asInt64(), 16);
  EXPECT_EQ(json["decision"]["perNode"].asInt64(), 8);
  EXPECT_FALSE(json["decision"]["reason"].asString().empty());
  EXPECT_EQ(json["requested"]["replicas"].asInt64(), 64);
  EXPECT_EQ(json["requested"]["gpuModel"].asString(), "A100-80GB");
  EXPECT_EQ(json["alternatives"].size(), 1U);
  EXPECT_GT(json["patch"].size(), 0U);
  for (const Json& operation : json["patch"]) {
    EXPECT_TRUE(operation["op"] == "add" || operation["op"] == "replace");
    EXPECT_TRUE(operation.isMember("value"));
  }
  EXPECT_GT(json["elapsedSeconds"].asDouble(), 0);
}

TEST_F(ProvisionCommand, PeopleSeeWhatWasAskedGivenAndSaved) {
  const Outcome outcome = provision({});
  EXPECT_EQ(outcome.code, kExitDone);
  EXPECT_THAT(outcome.out, HasSubstr("requested  64 x A100-80GB"));
  EXPECT_THAT(outcome.out, ContainsRegex("GPUs saved \\([0-9.]+%\\), and [0-9.]+% (fewer|more) GPU-hours"));
  EXPECT_THAT(outcome.out, HasSubstr("Embeddings: 400 tables"));
  EXPECT_THAT(outcome.out, HasSubstr("verdict"));
  EXPECT_THAT(outcome.out, HasSubstr("decided in"));
}

TEST_F(ProvisionCommand, WhatFitsNowhereIsExitOne) {
  std::string job = kJob;
  job.replace(job.find("count: 400"), 10, "count: 4000");
  const Outcome outcome = provision({"-o", "json"}, job);
  EXPECT_EQ(outcome.code, kExitRefused);
  EXPECT_THAT(outcome.err, HasSubstr("the cluster has 16"));
  const Json json = outcome.json();
  EXPECT_TRUE(json["decision"].isNull());
  EXPECT_EQ(json["eventReason"].asString(), "NoFittingGPU");
  EXPECT_EQ(json["patch"].size(), 0U);
  EXPECT_FALSE(json["alternatives"][0]["fits"].asBool());
  EXPECT_EQ(provision({}, job).code, kExitRefused);
}

TEST_F(ProvisionCommand, AJobThatOnUnfitRejectsIsSaidToBeRejected) {
  std::string job = kJob;
  job.replace(job.find("count: 400"), 10, "count: 4000");
  EXPECT_FALSE(provision({"-o", "json"}, job).json()["rejected"].asBool());
  EXPECT_THAT(provision({}, job).out, HasSubstr("keeps what it requests (NoFittingGPU)"));
  job.insert(job.find("  trainers:"), "  provisioning: {onUnfit: Deny}\n");
  EXPECT_TRUE(provision({"-o", "json"}, job).json()["rejected"].asBool());
  const Outcome outcome = provision({}, job);
  EXPECT_EQ(outcome.code, kExitRefused);
  EXPECT_THAT(outcome.out, HasSubstr("is rejected, as provisioning.onUnfit is Deny (NoFittingGPU)"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("keeps its")));
}

TEST_F(ProvisionCommand, OptingOutIsNoFailure) {
  std::string job = kJob;
  job.replace(job.find("namespace: team"), 15,
              "namespace: team, annotations: {plimsoll.dev/provisioning: disabled}");
  const Outcome outcome = provision({"-o", "json"}, job);
  EXPECT_EQ(outcome.code, kExitDone);
  EXPECT_EQ(outcome.json()["eventReason"].asString(), "Disabled");
}

TEST_F(ProvisionCommand, EachDocumentIsAnswered) {
  const Outcome outcome = provision({"-o", "yaml"}, std::string(kJob) + "---\n" + kJob);
  EXPECT_EQ(outcome.code, kExitDone);
  EXPECT_THAT(outcome.out, HasSubstr("\n---\n"));
  EXPECT_EQ(provision({"-o", "json"}, std::string(kJob) + "---\nkind: TrainingJob\n").json().size(), 2U);
}

TEST_F(ProvisionCommand, ProfilesAndConfigMapsMayBeInEitherFile) {
  const TemporaryFile extra(R"(apiVersion: plimsoll.dev/v1alpha1
kind: MemoryProfile
metadata: {name: ads, namespace: team}
spec: {family: ads, bounds: [{communication: 40Gi}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: tables, namespace: team}
data: {tables.csv: "more0,2097152,128,1\n"}
)");
  const Json plain = provision({"-o", "json"}).json();
  const Json learned = provision({"--cluster", extra.path(), "-o", "json"}).json();
  EXPECT_GT(learned["decision"]["trainers"].asInt64(), plain["decision"]["trainers"].asInt64());

  std::string job = kJob;
  job.insert(job.find("      tables:"),
             "      tablesFrom: {configMapKeyRef: {name: tables, key: tables.csv}}\n");
  const Outcome both = provision({"--cluster", extra.path(), "-o", "json"}, job);
  EXPECT_EQ(both.json()["decision"]["sharding"]["tables"].asInt64(), 401) << both.err;
  EXPECT_EQ(provision({}, job).code, kExitRefused);
}

TEST_F(ProvisionCommand, AWorkloadOfAnotherKindGetsThePatchOfItself) {
  const Outcome outcome = provision({"-o", "json"}, std::string(kPyTorchJob) + kDescription);
  EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
  const Json json = outcome.json();
  EXPECT_EQ(json["job"].asString(), "PyTorchJob team/tuned");
  EXPECT_EQ(json["kind"].asString(), "PyTorchJob");
  EXPECT_EQ(json["decision"]["trainers"].asInt64(), 16);
  std::string paths;
  for (const Json& operation : json["patch"]) {
    paths += operation["path"].asString() + "\n";
  }
  EXPECT_THAT(paths, HasSubstr("/spec/pytorchReplicaSpecs/Worker/template/spec/nodeSelector"));
}

// They were passed over without a word, exit code 0.
TEST_F(ProvisionCommand, WhatCannotBeAnsweredBesideAJobIsExitOneAndNamed) {
  const Outcome outcome = provision({"-o", "json"}, std::string(kJob) + R"(---
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: ring, namespace: team}
spec: {mpiReplicaSpecs: {Worker: {template: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: 4}}}]}}}}}
)");
  EXPECT_EQ(outcome.code, kExitRefused);
  const Json json = outcome.json();
  ASSERT_EQ(json.size(), 2U);
  EXPECT_FALSE(json[0]["decision"].isNull());
  EXPECT_EQ(json[1]["job"].asString(), "MPIJob team/ring");
  EXPECT_EQ(json[1]["code"].asString(), "Unsupported");
  EXPECT_THAT(outcome.err, HasSubstr("standard input, document 2"));
}

TEST_F(ProvisionCommand, WrongUsageIsExitTwo) {
  EXPECT_EQ(run(run_provision, {"--cluster", cluster_.path()}).code, kExitUsage);
  EXPECT_EQ(run(run_provision, {"-f", "-", "--cluster", "/no/such/file"}, kJob).code, kExitUsage);
  EXPECT_EQ(provision({"--method", "guess"}).code, kExitUsage);
  EXPECT_EQ(provision({}, "kind: Other\n").code, kExitUsage);
  const Outcome nowhere = run(run_provision, {"-f", "-", "--kubeconfig", "/no/such/kubeconfig"}, kJob);
  EXPECT_EQ(nowhere.code, kExitUsage);
  EXPECT_THAT(nowhere.err, HasSubstr("no --cluster FILE was given"));
}

// The paper's models on the example cluster: 128 requested, fewer given, the same each time.
TEST_F(ProvisionCommand, ThePapersModelsTakeFewerGpusThanAskedFor) {
  for (const char* model : {"a", "b", "c"}) {
    const std::vector<std::string> arguments = {
        "-f",        source_file(std::string("examples/model-") + model + ".yaml"),
        "--cluster", source_file("examples/cluster.yaml"),
        "-o",        "json"};
    const Outcome outcome = run(run_provision, arguments);
    EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
    const Json json = outcome.json();
    EXPECT_EQ(json["requested"]["replicas"].asInt64(), 128);
    EXPECT_EQ(json["decision"]["gpuModel"].asString(), "A100-80GB");
    EXPECT_LE(json["decision"]["trainers"].asInt64(), 88);
    EXPECT_EQ(json["alternatives"].size(), 4U);
    Json again = run(run_provision, arguments).json();
    again["elapsedSeconds"] = json["elapsedSeconds"];
    EXPECT_EQ(write_json(again), write_json(json));
  }
}

}  // namespace
}  // namespace plimsoll::cli
