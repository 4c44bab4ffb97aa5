#include "workloads/train_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/yaml.h"
#include "tests/webhook/samples.h"
#include "workloads/sizing.h"

namespace plimsoll::workloads {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::patched;

Json yaml(const std::string& text) {
  return parse_yaml_documents(text)->front();
}

// As Trainer's own torch-distributed, with GPUs and what initializes the model.
const char* const kRuntime = R"(
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch-distributed}
spec:
  mlPolicy: {numNodes: 1, torch: {numProcPerNode: auto}}
  template:
    spec:
      replicatedJobs:
        - name: model-initializer
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: model-initializer}}
            spec: {template: {spec: {containers: [{name: model-initializer, image: a}]}}}
        - name: node
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec:
              template:
                spec:
                  nodeSelector: {pool: training}
                  containers:
                    - {name: sidecar, image: a}
                    - name: node
                      image: a
                      command: [torchrun, train.py]
                      env: [{name: NNODES, value: "2"}, {name: HOME, value: /tmp}]
                      resources: {requests: {cpu: "8"}, limits: {nvidia.com/gpu: "8"}}
)";

const char* const kTrainJob = R"(
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: tune, namespace: ml, labels: {plimsoll.dev/family: pair}}
spec:
  runtimeRef: {apiGroup: trainer.kubeflow.org, kind: ClusterTrainingRuntime, name: torch-distributed}
  trainer: {numNodes: 2}
)";

// The part of a CustomResourceDefinition that tells the release of Trainer.
Json definition_with(const char* field) {
  Json definition = yaml(R"(
spec:
  versions:
    - {name: v1alpha0, schema: {openAPIV3Schema: {properties: {spec: {properties: {runtimePatches: {}}}}}}}
    - {name: v1alpha1, schema: {openAPIV3Schema: {properties: {spec: {properties: {trainer: {}}}}}}}
)");
  definition["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][field] =
      Json(::Json::objectValue);
  return definition;
}

class TrainJobTest : public ::testing::Test {
 protected:
  TrainJobTest() {
    references_ = {.runtime = yaml(kRuntime), .definition = definition_with("podSpecOverrides")};
  }

  static const Kind& kind() { return *find_kind("trainer.kubeflow.org", "TrainJob"); }

  Result<WorkloadSizing> sizing() {
    return WorkloadSizing::of(
        kind(), job_, references_, "ml",
        {yaml("{transformer: {seqLen: 128, layers: 2, hidden: 64, heads: 4, ffn: 256, vocab: 1000}}"),
         yaml("{batchSizePerTrainer: 4}")},
        crds::ProvisioningMode::kAuto);
  }

  Result<Json> patch(std::int64_t trainers, std::int64_t per_node,
                     std::vector<std::string> labels = {"NVIDIA-A100-SXM4-80GB"}) {
    estimator::Provision provision;
    estimator::Decision& decision = provision.decision.emplace();
    decision.gpu_model = "A100-80GB";
    decision.product_labels = std::move(labels);
    decision.trainers = trainers;
    decision.per_node = per_node;
    const Result<WorkloadSizing> sized = sizing();
    return sized ? sized->patch_for(provision) : sized.error();
  }

  // The spec after the decision, which needs no second patch.
  Json spec_after(std::int64_t trainers, std::int64_t per_node,
                  const std::vector<std::string>& labels = {"NVIDIA-A100-SXM4-80GB"}) {
    const Result<Json> first = patch(trainers, per_node, labels);
    EXPECT_TRUE(first) << first.error().message;
    if (!first) {
      return {};
    }
    const Json before = job_;
    job_ = patched(job_, *first);
    const Result<Json> again = patch(trainers, per_node, labels);
    EXPECT_TRUE(again && again->empty()) << (again ? write_json(*again) : again.error().message);
    const Json spec = job_["spec"];
    job_ = before;
    return spec;
  }

  // Whatever the shapes, a patch can be applied.
  void expect_no_harm() {
    const Result<Json> made = patch(8, 4);
    if (made) {
      patched(job_, *made);
    } else {
      EXPECT_THAT(made.error().message, Not(IsEmpty()));
    }
  }

  // Of the trainers; the first one is a sidecar.
  Json& container_of_runtime() {
    Json& trainers = references_.runtime["spec"]["template"]["spec"]["replicatedJobs"][1];
    return trainers["template"]["spec"]["template"]["spec"]["containers"][1];
  }

  Json job_ = yaml(kTrainJob);
  References references_;
};

TEST_F(TrainJobTest, IsReadFromTheJobAndItsRuntime) {
  const Result<Workload> workload = read_workload(kind(), job_, references_);
  ASSERT_TRUE(workload) << workload.error().message;
  ASSERT_EQ(workload->groups.size(), 1U);
  EXPECT_EQ(workload->pods(), 2);
  EXPECT_EQ(workload->gpus_per_pod(), 8);
  EXPECT_EQ(workload->groups[0].container, 1U);
  EXPECT_THAT(workload->fixed, IsEmpty());

  job_["spec"]["trainer"] = yaml("{numNodes: 3, resourcesPerNode: {limits: {nvidia.com/gpu: 2}}}");
  EXPECT_EQ(read_workload(kind(), job_, references_)->gpus(), 6);
  job_["spec"].removeMember("trainer");
  EXPECT_EQ(read_workload(kind(), job_, references_)->gpus(), 8);
}

TEST_F(TrainJobTest, WhatTheRuntimeHasIsWrittenIntoTheJob) {
  const Json spec = spec_after(4, 4);
  const Json& trainer = spec["trainer"];
  EXPECT_EQ(trainer["numNodes"], 1);
  // The rest of the container's resources stays; Trainer 2.0 needs the request.
  EXPECT_EQ(trainer["resourcesPerNode"],
            yaml(R"({requests: {cpu: "8", nvidia.com/gpu: "4"}, limits: {nvidia.com/gpu: "4"}})"));
  EXPECT_EQ(trainer["env"], yaml(R"({a: [{name: NNODES, value: "1"}]})")["a"]);
  EXPECT_FALSE(trainer.isMember("command"));
  EXPECT_FALSE(trainer.isMember("numProcPerNode"));
  EXPECT_EQ(spec["podSpecOverrides"], yaml(R"(
a:
  - targetJobs: [{name: node}]
    nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}
)")["a"]);
}

TEST_F(TrainJobTest, AJobWithoutATrainerGetsOne) {
  job_["spec"].removeMember("trainer");
  references_.runtime["spec"]["mlPolicy"]["numNodes"] = 2;
  const Json spec = spec_after(32, 8);
  EXPECT_EQ(spec["trainer"]["numNodes"], 4);
  EXPECT_FALSE(spec["trainer"].isMember("resourcesPerNode"));
}

TEST_F(TrainJobTest, EachReleaseOfTrainerHasItsOwnField) {
  references_.definition = definition_with("podTemplateOverrides");
  EXPECT_EQ(spec_after(16, 8)["podTemplateOverrides"], yaml(R"(
a:
  - targetJobs: [{name: node}]
    spec: {nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}}
)")["a"]);
  references_.definition = definition_with("runtimePatches");
  const Json patches = yaml(R"(
a:
  - manager: plimsoll.dev/webhook
    trainingRuntimeSpec:
      template:
        spec:
          replicatedJobs:
            - name: node
              template: {spec: {template: {spec: {nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}}}}}
)")["a"];
  EXPECT_EQ(spec_after(16, 8)["runtimePatches"], patches);
  // What the job has itself tells the release, too.
  references_.definition = Json();
  job_["spec"]["runtimePatches"] = yaml("{a: [{manager: kueue.x-k8s.io/manager}]}")["a"];
  const Json after = spec_after(16, 8);
  ASSERT_EQ(after["runtimePatches"].size(), 2U);
  EXPECT_EQ(after["runtimePatches"][0], job_["spec"]["runtimePatches"][0]);
  EXPECT_EQ(after["runtimePatches"][1], patches[0]);

  job_["spec"].removeMember("runtimePatches");
  EXPECT_THAT(patch(16, 8).error().message, HasSubstr("none of the fields"));
}

TEST_F(TrainJobTest, OthersOverridesAreReadAndStay) {
  job_["spec"]["podSpecOverrides"] = yaml(R"(
a:
  - targetJobs: [{name: node}]
    nodeSelector: {zone: a}
    tolerations: [{key: nvidia.com/gpu, operator: Exists}]
  - targetJobs: [{name: model-initializer}]
    nodeSelector: {zone: b}
)")["a"];
  const Result<Workload> workload = read_workload(kind(), job_, references_);
  ASSERT_TRUE(workload) << workload.error().message;
  EXPECT_EQ(tree_of(member(workload->groups[0].pod_template, {"spec", "nodeSelector"})),
            yaml("{pool: training, zone: a}"));
  const Json after = spec_after(16, 8);
  ASSERT_EQ(after["podSpecOverrides"].size(), 3U);
  EXPECT_EQ(after["podSpecOverrides"][0], job_["spec"]["podSpecOverrides"][0]);
  EXPECT_EQ(after["podSpecOverrides"][2]["nodeSelector"],
            yaml("{nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}"));
}

TEST_F(TrainJobTest, SeveralNamesOfAGpuModelNeedAnAffinity) {
  const std::vector<std::string> names = {"NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB"};
  EXPECT_THAT(patch(16, 8, names).error().message, HasSubstr("podSpecOverrides has no affinity"));
  references_.definition = definition_with("podTemplateOverrides");
  const Json spec = spec_after(16, 8, names)["podTemplateOverrides"][0]["spec"];
  EXPECT_TRUE(spec["affinity"]["nodeAffinity"].isObject()) << write_json(spec);
  EXPECT_FALSE(spec.isMember("nodeSelector"));
}

TEST_F(TrainJobTest, ArgumentsThatRepeatTheSizeFollow) {
  job_["spec"]["trainer"] = yaml(R"(
numNodes: 2
numProcPerNode: 8
command: [torchrun, --nnodes=2, train.py]
env: [{name: NNODES, value: "2"}]
)");
  const Json trainer = spec_after(12, 4)["trainer"];
  EXPECT_EQ(trainer["numNodes"], 3);
  EXPECT_EQ(trainer["numProcPerNode"], 4);
  EXPECT_EQ(trainer["command"], yaml("{a: [torchrun, --nnodes=3, train.py]}")["a"]);
  EXPECT_EQ(trainer["env"], yaml(R"({a: [{name: NNODES, value: "3"}]})")["a"]);

  job_["spec"]["trainer"]["numProcPerNode"] = 1;
  EXPECT_THAT(sizing()->why_fixed(), HasSubstr("numProcPerNode is 1, and a pod requests 8 GPUs"));
  job_["spec"]["trainer"].removeMember("numProcPerNode");
  references_.runtime["spec"]["mlPolicy"]["torch"]["numProcPerNode"] = 8;
  EXPECT_EQ(spec_after(12, 4)["trainer"]["numProcPerNode"], 4);
  references_.runtime["spec"]["mlPolicy"]["torch"]["elasticPolicy"]["maxNodes"] = 4;
  EXPECT_THAT(sizing()->why_fixed(), HasSubstr("elasticPolicy"));
}

// Before the sizes are checked, each of the job's variables used to be looked for in the whole list, which was copied each time: minutes
// for a list of this length.
TEST_F(TrainJobTest, LongListsOfVariablesAreRefusedSoon) {
  Json of_runtime(::Json::arrayValue);
  Json of_job(::Json::arrayValue);
  for (int i = 0; i < 20'000; ++i) {
    of_runtime.append(yaml("{name: R" + std::to_string(i) + "}"));
    of_job.append(yaml("{name: J" + std::to_string(i) + "}"));
  }
  container_of_runtime()["env"] = of_runtime;
  job_["spec"]["trainer"] = yaml("{numNodes: 2}");
  job_["spec"]["trainer"]["env"] = of_job;
  EXPECT_THAT(sizing().error().message, HasSubstr("env: must have at most 1024 items, has 40000"));
}

TEST_F(TrainJobTest, OfTheVariablesOfANameTheJobsLastCounts) {
  container_of_runtime()["env"] = yaml(R"({a: [{name: A, value: "1"}, {name: NNODES, value: "9"}]})")["a"];
  job_["spec"]["trainer"] = yaml(R"(
numNodes: 2
command: [torchrun, train.py]
env: [{name: B, value: "2"}, {name: NNODES, value: "1"}, {name: NNODES, value: "2"}]
)");
  const Json trainer = spec_after(12, 4)["trainer"];
  EXPECT_EQ(trainer["env"][0], yaml(R"({name: B, value: "2"})"));
  for (Json::ArrayIndex i = 1; i < trainer["env"].size(); ++i) {
    EXPECT_EQ(trainer["env"][i], yaml(R"({name: NNODES, value: "3"})"));
  }
}

TEST_F(TrainJobTest, RuntimesThatCannotBeSizedAreRefused) {
  const Json runtime = references_.runtime;
  references_.runtime["spec"]["mlPolicy"] = yaml("{mpi: {numProcPerNode: 1}}");
  EXPECT_THAT(sizing().error().message, HasSubstr("one of mpi"));
  references_.runtime = runtime;
  Json& jobs = references_.runtime["spec"]["template"]["spec"]["replicatedJobs"];
  jobs[1]["template"]["spec"]["template"]["spec"]["containers"][1]["name"] = "other";
  EXPECT_THAT(sizing().error().message, HasSubstr("is not called node"));
  jobs[0] = jobs[1];
  EXPECT_THAT(sizing().error().message, HasSubstr("several jobs"));
  references_.runtime = Json();
  EXPECT_THAT(sizing().error().message, HasSubstr("no job of its runtime has the label"));
}

TEST_F(TrainJobTest, AnyShapeIsReadWithoutHarm) {
  const Json shapes[] = {Json("text"), Json(7), yaml("{a: [1]}")["a"], yaml("{a: 1}")};
  for (const Json& shape : shapes) {
    for (const char* field : {"trainer", "podSpecOverrides", "runtimePatches", "podTemplateOverrides"}) {
      job_ = yaml(kTrainJob);
      job_["spec"][field] = shape;
      expect_no_harm();
    }
    job_ = yaml(kTrainJob);
    for (const char* field : {"command", "env", "resourcesPerNode", "numProcPerNode"}) {
      job_["spec"]["trainer"][field] = shape;
    }
    expect_no_harm();
    references_.runtime = yaml(kRuntime);
    Json& template_spec =
        references_.runtime["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]["spec"]["template"];
    template_spec["spec"]["nodeSelector"] = shape;
    job_ = yaml(kTrainJob);
    expect_no_harm();
    template_spec["spec"] = shape;
    EXPECT_FALSE(patch(8, 4));
    references_.runtime["spec"] = shape;
    EXPECT_FALSE(patch(8, 4));
  }
}

}  // namespace
}  // namespace plimsoll::workloads
