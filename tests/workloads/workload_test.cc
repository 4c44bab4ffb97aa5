#include "workloads/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/yaml.h"

namespace plimsoll::workloads {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Json yaml(const std::string& text) {
  return parse_yaml_documents(text)->front();
}

Result<Workload> read(const char* group, const char* kind, const Json& object) {
  return read_workload(*find_kind(group, kind), object, {});
}

std::vector<std::string> counts_of(const PodGroup& group) {
  std::vector<std::string> pointers;
  for (const CountField& count : group.counts) {
    pointers.push_back(count.pointer);
  }
  return pointers;
}

const char* const kJob = R"(
spec:
  completionMode: Indexed
  parallelism: 4
  completions: 4
  template:
    spec:
      containers:
        - {name: sidecar}
        - {name: main, resources: {limits: {nvidia.com/gpu: "8"}}}
)";

TEST(Workload, AnIndexedJobIsOneTrainingJob) {
  const Json job = yaml(kJob);
  const Result<Workload> workload = read("batch", "Job", job);
  ASSERT_TRUE(workload) << workload.error().message;
  ASSERT_EQ(workload->groups.size(), 1U);
  const PodGroup& group = workload->groups.front();
  EXPECT_EQ(group.template_path, "/spec/template");
  EXPECT_EQ(group.container, 1U);
  EXPECT_THAT(counts_of(group), ElementsAre("/spec/parallelism", "/spec/completions"));
  EXPECT_EQ(workload->gpus(), 32);
  EXPECT_THAT(workload->fixed, IsEmpty());
}

TEST(Workload, TasksOfAJobKeepTheirNumber) {
  Json job = yaml(kJob);
  job["spec"]["completions"] = 100;
  EXPECT_THAT(read("batch", "Job", job)->fixed, HasSubstr("can have another number"));
  job = yaml(kJob);
  job["spec"].removeMember("completionMode");
  EXPECT_THAT(read("batch", "Job", job)->fixed, HasSubstr("can have another number"));
}

TEST(Workload, APyTorchJobHasOneMasterAndWorkers) {
  const Json job = yaml(R"(
spec:
  nprocPerNode: "8"
  pytorchReplicaSpecs:
    Master: {replicas: 1, template: {spec: {containers: [{name: pytorch, resources: {limits: {nvidia.com/gpu: 8}}}]}}}
    Worker: {replicas: 3, template: {spec: {containers: [{name: pytorch, resources: {limits: {nvidia.com/gpu: 8}}}]}}}
)");
  const Result<Workload> workload = read("kubeflow.org", "PyTorchJob", job);
  ASSERT_TRUE(workload) << workload.error().message;
  ASSERT_EQ(workload->groups.size(), 2U);
  EXPECT_THAT(counts_of(workload->groups[0]), IsEmpty());
  EXPECT_THAT(counts_of(workload->groups[1]), ElementsAre("/spec/pytorchReplicaSpecs/Worker/replicas"));
  EXPECT_EQ(workload->pods(), 4);
  EXPECT_EQ(workload->processes_path, "/spec/nprocPerNode");
  Json text = job;
  text["spec"]["nprocPerNode"] = "auto";
  EXPECT_THAT(read("kubeflow.org", "PyTorchJob", text)->processes_path, IsEmpty());
  EXPECT_THAT(read("kubeflow.org", "PyTorchJob", text)->fixed, IsEmpty());
  text["spec"]["nprocPerNode"] = "4";
  EXPECT_THAT(read("kubeflow.org", "PyTorchJob", text)->fixed,
              HasSubstr("nprocPerNode is 4, and a pod requests 8 GPUs, of which 4 have no process"));
  Json elastic = job;
  elastic["spec"]["elasticPolicy"]["minReplicas"] = 1;
  EXPECT_THAT(read("kubeflow.org", "PyTorchJob", elastic)->fixed, HasSubstr("elasticPolicy"));
}

TEST(Workload, OnlyPodsThatRequestGpusOfAJobSetCount) {
  const Json set = yaml(R"(
spec:
  replicatedJobs:
    - {name: launcher, template: {spec: {template: {spec: {containers: [{name: main}]}}}}}
    - name: workers
      replicas: 1
      template:
        spec:
          completionMode: Indexed
          parallelism: 2
          completions: 2
          template: {spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 4}}}]}}
)");
  const Result<Workload> workload = read("jobset.x-k8s.io", "JobSet", set);
  ASSERT_TRUE(workload) << workload.error().message;
  ASSERT_EQ(workload->groups.size(), 1U);
  EXPECT_EQ(workload->groups[0].role, "workers");
  EXPECT_EQ(workload->groups[0].template_path, "/spec/replicatedJobs/1/template/spec/template");
  EXPECT_THAT(counts_of(workload->groups[0]),
              ElementsAre("/spec/replicatedJobs/1/template/spec/parallelism",
                          "/spec/replicatedJobs/1/template/spec/completions"));
  EXPECT_EQ(workload->gpus(), 8);
}

TEST(Workload, JobsOfAJobSetWithOnePodEachAreCounted) {
  const Json set = yaml(R"(
spec:
  replicatedJobs:
    - name: workers
      replicas: 4
      template: {spec: {template: {spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 8}}}]}}}}
)");
  const Result<Workload> workload = read("jobset.x-k8s.io", "JobSet", set);
  ASSERT_TRUE(workload) << workload.error().message;
  EXPECT_THAT(counts_of(workload->groups[0]), ElementsAre("/spec/replicatedJobs/0/replicas"));
  EXPECT_EQ(workload->pods(), 4);
}

TEST(Workload, WorkersOfRayKeepTheirNumber) {
  const Json cluster = yaml(R"(
spec:
  rayClusterSpec:
    headGroupSpec: {template: {spec: {containers: [{name: head}]}}}
    workerGroupSpecs:
      - {groupName: gpus, replicas: 2, numOfHosts: 2, template: {spec: {containers: [{name: ray, resources: {limits: {nvidia.com/gpu: 4}}}]}}}
)");
  const Result<Workload> workload = read("ray.io", "RayJob", cluster);
  ASSERT_TRUE(workload) << workload.error().message;
  EXPECT_EQ(workload->gpus(), 16);
  EXPECT_EQ(workload->groups[0].template_path, "/spec/rayClusterSpec/workerGroupSpecs/0/template");
  EXPECT_THAT(workload->fixed, HasSubstr("in its own code"));
}

const char* const kLeaderWorkerSet = R"(
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 4
    restartPolicy: RecreateGroupOnPodRestart
    workerTemplate: {spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: "8"}}}]}}
)";

TEST(Workload, AGroupOfALeaderWorkerSetIsOneTrainingJob) {
  const Json set = yaml(kLeaderWorkerSet);
  const Result<Workload> workload = read("leaderworkerset.x-k8s.io", "LeaderWorkerSet", set);
  ASSERT_TRUE(workload) << workload.error().message;
  ASSERT_EQ(workload->groups.size(), 1U);
  EXPECT_EQ(workload->pods(), 4);
  EXPECT_EQ(workload->groups[0].template_path, "/spec/leaderWorkerTemplate/workerTemplate");
  EXPECT_THAT(counts_of(workload->groups[0]), ElementsAre("/spec/leaderWorkerTemplate/size"));
  EXPECT_EQ(workload->groups[0].counts[0].others, 0);
  EXPECT_THAT(workload->fixed, IsEmpty());

  Json with_leader = set;
  with_leader["spec"]["leaderWorkerTemplate"]["leaderTemplate"] =
      set["spec"]["leaderWorkerTemplate"]["workerTemplate"];
  const Result<Workload> both = read("leaderworkerset.x-k8s.io", "LeaderWorkerSet", with_leader);
  ASSERT_TRUE(both) << both.error().message;
  ASSERT_EQ(both->groups.size(), 2U);
  EXPECT_EQ(both->pods(), 4);
  EXPECT_EQ(both->groups[1].pods, 3);
  EXPECT_EQ(both->groups[1].counts[0].others, 1);

  // A leader without GPUs trains nothing.
  with_leader["spec"]["leaderWorkerTemplate"]["leaderTemplate"] =
      yaml("{spec: {containers: [{name: main}]}}");
  EXPECT_EQ(read("leaderworkerset.x-k8s.io", "LeaderWorkerSet", with_leader)->pods(), 3);

  Json divided = set;
  divided["spec"]["leaderWorkerTemplate"]["subGroupPolicy"]["subGroupSize"] = 2;
  EXPECT_THAT(read("leaderworkerset.x-k8s.io", "LeaderWorkerSet", divided)->fixed,
              HasSubstr("subGroupPolicy"));
  Json none = set;
  none["spec"]["leaderWorkerTemplate"]["size"] = 0;
  EXPECT_FALSE(read("leaderworkerset.x-k8s.io", "LeaderWorkerSet", none));
}

TEST(Workload, APodKeepsItsNumberOfGpus) {
  const Json pod = yaml(R"(
spec: {containers: [{name: sidecar}, {name: main, resources: {limits: {nvidia.com/gpu: 4}}}]}
status: {phase: Pending}
)");
  const Result<Workload> workload = read("", "Pod", pod);
  ASSERT_TRUE(workload) << workload.error().message;
  EXPECT_EQ(workload->groups[0].template_path, "");
  EXPECT_EQ(workload->groups[0].container, 1U);
  EXPECT_EQ(workload->gpus(), 4);
  EXPECT_THAT(workload->fixed, HasSubstr("a pod cannot"));
  EXPECT_TRUE(workload->partial);
  // The template has nothing but what a template has.
  EXPECT_TRUE(member(workload->groups[0].pod_template, {"status"}).is_null());
}

TEST(Workload, TheLabelOptsInAndForATrainJobTrainersAnnotation) {
  const Json labelled = yaml("{metadata: {labels: {plimsoll.dev/family: a}}}");
  const Json annotated = yaml("{metadata: {annotations: {trainer.kubeflow.org/autoconf-plugin: plimsoll}}}");
  const Json another = yaml("{metadata: {annotations: {trainer.kubeflow.org/autoconf-plugin: ado}}}");
  for (const Kind& kind : kinds()) {
    EXPECT_TRUE(opts_in(kind, labelled)) << kind.kind;
    EXPECT_EQ(opts_in(kind, annotated), kind.kind == "TrainJob") << kind.kind;
    EXPECT_FALSE(opts_in(kind, another)) << kind.kind;
    EXPECT_FALSE(opts_in(kind, Json())) << kind.kind;
  }
}

TEST(Workload, WhatCannotBeSizedIsRefused) {
  Json job = yaml(kJob);
  job["spec"]["template"]["spec"]["containers"][1].removeMember("resources");
  EXPECT_EQ(read("batch", "Job", job).error().code, ErrorCode::kUnsupported);
  job = yaml(kJob);
  job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 1;
  EXPECT_THAT(read("batch", "Job", job).error().message, HasSubstr("several containers"));
  for (const Json& wrong : {Json("many"), Json(-1), Json(1.5), Json(1e18), Json(::Json::objectValue)}) {
    job = yaml(kJob);
    job["spec"]["parallelism"] = wrong;
    EXPECT_EQ(read("batch", "Job", job).error().code, ErrorCode::kInvalid) << write_json(wrong);
  }
  const Json different = yaml(R"(
spec:
  pytorchReplicaSpecs:
    Master: {template: {spec: {containers: [{name: pytorch, resources: {limits: {nvidia.com/gpu: 4}}}]}}}
    Worker: {template: {spec: {containers: [{name: pytorch, resources: {limits: {nvidia.com/gpu: 8}}}]}}}
)");
  EXPECT_THAT(read("kubeflow.org", "PyTorchJob", different).error().message, HasSubstr("different numbers"));
}

TEST(Workload, AnObjectOfAnyShapeIsReadWithoutHarm) {
  const Json shapes[] = {
      Json(),
      Json("text"),
      Json(7),
      Json(::Json::arrayValue),
      yaml("{spec: [1, 2]}"),
      yaml("{spec: {template: 1, replicatedJobs: {a: 1}, workerGroupSpecs: x, pytorchReplicaSpecs: []}}"),
      yaml("{spec: {replicatedJobs: [1, null, {template: []}], parallelism: 1}}")};
  for (const Kind& kind : kinds()) {
    for (const Json& shape : shapes) {
      EXPECT_FALSE(read_workload(kind, shape, {})) << kind.kind << ": " << write_json(shape);
    }
  }
}

TEST(Workload, WhatAControllerMadeIsKnown) {
  EXPECT_FALSE(has_controller(yaml(kJob)));
  EXPECT_FALSE(has_controller(yaml("{metadata: {ownerReferences: [{kind: ConfigMap}]}}")));
  EXPECT_TRUE(has_controller(yaml("{metadata: {ownerReferences: [{kind: JobSet, controller: true}]}}")));
}

}  // namespace
}  // namespace plimsoll::workloads
