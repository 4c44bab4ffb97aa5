// Workloads of other kinds, by kubectl: what they are after admission.
#include <gmock/gmock.h>

#include <algorithm>
#include <cctype>

#include "tests/checkout.h"
#include "tests/e2e/main_job.h"
#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const char* const kDescription = R"(
apiVersion: v1
kind: ConfigMap
metadata: {name: ranker}
data:
  model.yaml: |
    model:
      transformer: {seqLen: 512, layers: 12, hidden: 768, heads: 12, ffn: 3072, vocab: 32000, attention: SDPA}
    training: {batchSizePerTrainer: 8, precision: BF16Mixed, optimizer: AdamW, parallelism: {strategy: DDP}}
)";

std::string job_of(const std::string& name, const std::string& labels,
                   const std::string& policy = "AvoidOOM") {
  return R"(
apiVersion: batch/v1
kind: Job
metadata:
  name: )" +
         name + R"(
  labels: {)" +
         labels + R"(}
  annotations: {plimsoll.dev/model: ranker/model.yaml, plimsoll.dev/policy: )" +
         policy + R"(}
spec:
  suspend: true
  completionMode: Indexed
  parallelism: 2
  completions: 2
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: main
          image: example.com/train:1
          command: [torchrun, --nnodes=2, --nproc-per-node=8, train.py]
          resources: {limits: {nvidia.com/gpu: "8"}}
)";
}

// The fields that sizing reads and writes, as the definitions of Trainer 2.0.1, Trainer 2.2.0 and LeaderWorkerSet 0.7.0 have them;
// what is not in them is pruned.
std::string definition(const std::string& group, const std::string& kind, const std::string& plural,
                       const std::string& version, const std::string& spec,
                       const std::string& scope = "Namespaced") {
  std::string singular = kind;
  std::transform(singular.begin(), singular.end(), singular.begin(), ::tolower);
  return R"(
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: )" +
         plural + "." + group + R"(}
spec:
  group: )" +
         group + R"(
  scope: )" +
         scope + R"(
  names: {kind: )" +
         kind + ", plural: " + plural + ", singular: " + singular + R"(}
  versions:
    - name: )" +
         version + R"(
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties: )" +
         spec;
}

constexpr const char* kAnything = "{type: object, x-kubernetes-preserve-unknown-fields: true}";

std::string train_jobs(const std::string& overrides) {
  return definition("trainer.kubeflow.org", "TrainJob", "trainjobs", "v1alpha1", R"(
                runtimeRef:
                  type: object
                  required: [name]
                  properties:
                    apiGroup: {type: string, default: trainer.kubeflow.org}
                    kind: {type: string, default: ClusterTrainingRuntime}
                    name: {type: string}
                suspend: {type: boolean, default: false}
                managedBy: {type: string, default: trainer.kubeflow.org/trainjob-controller}
                trainer:
                  type: object
                  properties:
                    image: {type: string}
                    command: {type: array, items: {type: string}}
                    numNodes: {type: integer, format: int32}
                    numProcPerNode: {x-kubernetes-int-or-string: true}
                    resourcesPerNode: {type: object, x-kubernetes-preserve-unknown-fields: true}
                )" + overrides);
}

const std::string kTrainer20 = R"(podSpecOverrides:
                  type: array
                  items:
                    type: object
                    required: [targetJobs]
                    properties:
                      nodeSelector: {type: object, additionalProperties: {type: string}}
                      targetJobs: {type: array, items: {type: object, properties: {name: {type: string}}}}
)";

const std::string kTrainer22 = R"(runtimePatches:
                  type: array
                  x-kubernetes-list-type: map
                  x-kubernetes-list-map-keys: [manager]
                  items:
                    type: object
                    required: [manager]
                    properties:
                      manager: {type: string}
                      trainingRuntimeSpec: {type: object, x-kubernetes-preserve-unknown-fields: true}
)";

std::string runtimes() {
  return definition("trainer.kubeflow.org", "ClusterTrainingRuntime", "clustertrainingruntimes", "v1alpha1",
                    std::string("{mlPolicy: ") + kAnything + ", template: " + kAnything + "}\n", "Cluster");
}

std::string leader_worker_sets() {
  return definition("leaderworkerset.x-k8s.io", "LeaderWorkerSet", "leaderworkersets", "v1", R"(
                replicas: {type: integer, format: int32, default: 1}
                startupPolicy: {type: string, default: LeaderCreated}
                leaderWorkerTemplate:
                  type: object
                  required: [workerTemplate]
                  properties:
                    size: {type: integer, format: int32, default: 1}
                    restartPolicy: {type: string}
                    workerTemplate: {type: object, x-kubernetes-preserve-unknown-fields: true}
)");
}

// As Trainer's own.
const char* const kTorchDistributed = R"(
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch-distributed}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec: {template: {spec: {containers: [{name: node, image: a, command: [torchrun, train.py]}]}}}
)";

constexpr const char* kFamily = "plimsoll.dev/family: ranker";

class WorkloadTest : public MainJobTest {
 protected:
  void SetUp() override {
    MainJobTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) {
      start_plimsoll();
      must({"apply", "-f", "-"}, kDescription);
    }
  }

  void install(const std::string& definitions) {
    must({"apply", "-f", "-"}, definitions);
    // kubectl fails on a definition that has no condition yet.
    ASSERT_TRUE(eventually("the definitions are established", [&] {
      return kubectl({"wait", "--for=condition=Established", kubectl_timeout(), "crd", "--all"}).exit_code ==
             0;
    }));
  }

  // Once the API server serves the kind.
  CommandResult apply_example(const std::string& name) {
    CommandResult applied;
    EXPECT_TRUE(eventually("the kind is served", [&] {
      applied = kubectl({"apply", "-f", PLIMSOLL_SOURCE_DIR "/examples/workloads/" + name});
      return applied.exit_code == 0;
    })) << applied.errors;
    return applied;
  }

  void opt_in() {
    must({"label", "namespace", "default", "plimsoll.dev/mode=Auto"});
    // The API server learns of a namespace's label by a watch of its own.
    ASSERT_TRUE(eventually("a job is sized", [&] {
      const CommandResult probe =
          kubectl({"create", "--dry-run=server", "-o", "json", "-f", "-"}, job_of("probe", kFamily));
      const Result<Json> object = parse_json(probe.output);
      return object && member(*object, {"spec", "template", "spec", "nodeSelector"}).isObject();
    })) << webhook_->log();
  }
};

TEST_F(WorkloadTest, AJobGetsAdviceAndWhereItsNamespaceHasOptedInItsSize) {
  must({"apply", "-f", "-"}, job_of("advised", kFamily, "FewestGPUs"));
  const Json advised = get("jobs.batch", "advised");
  EXPECT_FALSE(annotation(advised, "provisioning-reason").empty());
  EXPECT_EQ(advised["spec"]["parallelism"], 2);
  EXPECT_TRUE(member(advised, {"spec", "template", "spec", "nodeSelector"}).isNull());

  opt_in();
  const CommandResult applied = must({"apply", "-f", "-"}, job_of("sized", kFamily, "FewestGPUs"));
  EXPECT_THAT(applied.errors, HasSubstr("Warning:"));
  const Json sized = get("jobs.batch", "sized");
  EXPECT_EQ(sized["spec"]["parallelism"], 1);
  EXPECT_EQ(sized["spec"]["completions"], 1);
  const Json& pod = sized["spec"]["template"]["spec"];
  // V100s compute no BF16.
  EXPECT_EQ(text_member(pod, {"nodeSelector", "nvidia.com/gpu.product"}), "NVIDIA-A100-SXM4-80GB");
  EXPECT_EQ(pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"].asString(), "1");
  EXPECT_EQ(pod["containers"][0]["command"][1].asString(), "--nnodes=1");
  EXPECT_EQ(pod["containers"][0]["command"][2].asString(), "--nproc-per-node=1");
  EXPECT_EQ(decision_of(sized)["trainers"].asInt(), 1);

  must({"apply", "-f", "-"}, job_of("kept", kFamily));
  const Json kept = get("jobs.batch", "kept");
  EXPECT_EQ(kept["spec"]["parallelism"], 2);
  EXPECT_FALSE(member(kept, {"spec", "template", "spec", "nodeSelector"}).isNull());
}

TEST_F(WorkloadTest, TheExamplesJobIsSized) {
  opt_in();
  must({"apply", "-f", PLIMSOLL_SOURCE_DIR "/examples/workloads/description.yaml"});
  must({"apply", "-f", PLIMSOLL_SOURCE_DIR "/examples/workloads/job.yaml"});
  const Json job = get("jobs.batch", "gpt2-medium");
  EXPECT_EQ(job["spec"]["parallelism"], 1);
  EXPECT_EQ(job["spec"]["template"]["spec"]["containers"][0]["command"][1].asString(), "--nnodes=1");
}

TEST_F(WorkloadTest, AFamilysProfileDescribesTheModelOfAJobWithoutAnAnnotation) {
  opt_in();
  must({"apply", "-f", PLIMSOLL_SOURCE_DIR "/examples/workloads/memory-profile.yaml"});
  std::string manifest = job_of("by-profile", "plimsoll.dev/family: gpt2-medium");
  const std::string annotation_of_model = "plimsoll.dev/model: ranker/model.yaml, ";
  manifest.erase(manifest.find(annotation_of_model), annotation_of_model.size());
  // The webhook learns of the profile by a watch.
  ASSERT_TRUE(eventually("a job is sized by its profile", [&] {
    kubectl({"delete", "jobs.batch", "by-profile", "--ignore-not-found"});
    const CommandResult applied = kubectl({"apply", "-f", "-"}, manifest);
    return applied.exit_code == 0 &&
           !annotation(get("jobs.batch", "by-profile"), "provisioning-decision").empty();
  })) << webhook_->log();
  const Json job = get("jobs.batch", "by-profile");
  EXPECT_FALSE(member(job, {"spec", "template", "spec", "nodeSelector"}).isNull());

  const CommandResult half = kubectl({"apply", "-f", "-"}, R"(
apiVersion: plimsoll.dev/v1alpha1
kind: MemoryProfile
metadata: {name: half}
spec: {family: half, training: {batchSizePerTrainer: many}}
)");
  EXPECT_NE(half.exit_code, 0);
  EXPECT_THAT(half.errors, HasSubstr("spec.training.batchSizePerTrainer"));
}

TEST_F(WorkloadTest, WithoutTheLabelAndWithPlimsollDownAJobIsAsItsUserWroteIt) {
  opt_in();
  must({"apply", "-f", "-"}, job_of("plain", "team: ranking"));
  const Json plain = get("jobs.batch", "plain");
  webhook_.reset();
  const CommandResult applied = must({"apply", "-f", "-"}, job_of("unseen", kFamily));
  EXPECT_THAT(applied.errors, Not(HasSubstr("Warning:")));
  const Json unseen = get("jobs.batch", "unseen");
  for (const Json& job : {plain, unseen}) {
    EXPECT_TRUE(annotation(job, "provisioning-reason").empty());
    EXPECT_EQ(job["spec"]["parallelism"], 2);
    EXPECT_TRUE(member(job, {"spec", "template", "spec", "nodeSelector"}).isNull());
    EXPECT_EQ(job["spec"]["template"]["spec"]["containers"][0]["command"][1].asString(), "--nnodes=2");
  }
}

TEST_F(WorkloadTest, AKindWhoseDefinitionComesLaterIsSizedWithoutARestart) {
  opt_in();
  must({"apply", "-f", "-"}, R"(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pytorchjobs.kubeflow.org}
spec:
  group: kubeflow.org
  scope: Namespaced
  names: {kind: PyTorchJob, plural: pytorchjobs, singular: pytorchjob}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
)");
  must({"wait", "--for=condition=Established", kubectl_timeout(), "crd/pytorchjobs.kubeflow.org"});
  const std::string manifest = R"(
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: ranker
  labels: {plimsoll.dev/family: ranker}
  annotations: {plimsoll.dev/model: ranker/model.yaml, plimsoll.dev/policy: FewestGPUs}
spec:
  pytorchReplicaSpecs:
    Master: {replicas: 1, template: {spec: {containers: [{name: pytorch, image: a, resources: {limits: {nvidia.com/gpu: "1"}}}]}}}
    Worker: {replicas: 7, template: {spec: {containers: [{name: pytorch, image: a, resources: {limits: {nvidia.com/gpu: "1"}}}]}}}
)";
  ASSERT_TRUE(eventually(
      "the kind is served",
      [&] {
        return kubectl({"apply", "-f", "-"}, manifest).exit_code;
      },
      0));
  const Json job = get("pytorchjobs.kubeflow.org", "ranker");
  EXPECT_EQ(job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"], 1);
  for (const char* role : {"Master", "Worker"}) {
    EXPECT_EQ(text_member(job["spec"]["pytorchReplicaSpecs"][role],
                          {"template", "spec", "nodeSelector", "nvidia.com/gpu.product"}),
              "NVIDIA-A100-SXM4-80GB")
        << role;
  }
}

TEST_F(WorkloadTest, TheExamplesTrainJobIsSizedThroughItsRuntime) {
  opt_in();
  install(train_jobs(kTrainer20) + runtimes());
  must({"apply", "-f", PLIMSOLL_SOURCE_DIR "/examples/workloads/description.yaml"});
  // Its runtime is missing.
  const CommandResult early = apply_example("trainjob.yaml");
  EXPECT_THAT(early.errors, HasSubstr("the TrainJob keeps its size: read the runtime of spec.runtimeRef"));
  EXPECT_EQ(get("trainjobs.trainer.kubeflow.org", "gpt2-medium")["spec"]["trainer"]["numNodes"], 2);
  must({"delete", "trainjobs.trainer.kubeflow.org", "gpt2-medium"});

  must({"apply", "-f", "-"}, kTorchDistributed);
  apply_example("trainjob.yaml");
  const Json job = get("trainjobs.trainer.kubeflow.org", "gpt2-medium");
  const Json& trainer = job["spec"]["trainer"];
  EXPECT_EQ(trainer["numNodes"], 1);
  EXPECT_EQ(trainer["resourcesPerNode"]["limits"]["nvidia.com/gpu"].asString(), "1");
  EXPECT_EQ(trainer["resourcesPerNode"]["requests"]["nvidia.com/gpu"].asString(), "1");
  const Json& override_of_node = job["spec"]["podSpecOverrides"][0];
  EXPECT_EQ(override_of_node["targetJobs"][0]["name"], "node");
  EXPECT_EQ(text_member(override_of_node, {"nodeSelector", "nvidia.com/gpu.product"}),
            "NVIDIA-A100-SXM4-80GB");
}

TEST_F(WorkloadTest, ATrainJobThatNamesPlimsollAsItsPluginNeedsNoLabel) {
  install(train_jobs(kTrainer22) + runtimes());
  must({"apply", "-f", "-"}, kTorchDistributed);
  const auto train_job = [](const std::string& name, const std::string& plugin) {
    return R"(
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: )" +
           name +
           R"(
  annotations: {plimsoll.dev/model: ranker/model.yaml, plimsoll.dev/policy: FewestGPUs, trainer.kubeflow.org/autoconf-plugin: )" +
           plugin + R"(}
spec:
  runtimeRef: {name: torch-distributed}
  trainer: {numNodes: 2, resourcesPerNode: {limits: {nvidia.com/gpu: 8}}}
)";
  };
  ASSERT_TRUE(eventually("the kind is served", [&] {
    return kubectl({"apply", "-f", "-"}, train_job("advised", "plimsoll")).exit_code == 0;
  }));
  const Json advised = get("trainjobs.trainer.kubeflow.org", "advised");
  EXPECT_FALSE(annotation(advised, "provisioning-reason").empty());
  EXPECT_EQ(advised["spec"]["trainer"]["numNodes"], 2);

  opt_in();
  must({"apply", "-f", "-"}, train_job("sized", "plimsoll"));
  const Json sized = get("trainjobs.trainer.kubeflow.org", "sized");
  EXPECT_EQ(sized["spec"]["trainer"]["numNodes"], 1);
  EXPECT_EQ(sized["spec"]["runtimePatches"][0]["manager"], "plimsoll.dev/webhook");
  must({"apply", "-f", "-"}, train_job("others", "another"));
  const Json others = get("trainjobs.trainer.kubeflow.org", "others");
  EXPECT_EQ(others["spec"]["trainer"]["numNodes"], 2);
  EXPECT_TRUE(annotation(others, "provisioning-reason").empty());
}

TEST_F(WorkloadTest, TheExamplesLeaderWorkerSetAndPodAreSized) {
  opt_in();
  install(leader_worker_sets());
  must({"apply", "-f", PLIMSOLL_SOURCE_DIR "/examples/workloads/description.yaml"});
  apply_example("leaderworkerset.yaml");
  const Json set = get("leaderworkersets.leaderworkerset.x-k8s.io", "gpt2-medium");
  const Json& group = set["spec"]["leaderWorkerTemplate"];
  EXPECT_EQ(group["size"], 1);
  const Json& spec = group["workerTemplate"]["spec"];
  EXPECT_EQ(text_member(spec, {"nodeSelector", "nvidia.com/gpu.product"}), "NVIDIA-A100-SXM4-80GB");
  EXPECT_THAT(spec["containers"][0]["command"][2].asString(), HasSubstr("--nnodes=1 --nproc-per-node=1 "));

  apply_example("pod.yaml");
  const Json pod = get("pods", "gpt2-medium");
  EXPECT_EQ(text_member(pod, {"spec", "nodeSelector", "nvidia.com/gpu.product"}), "NVIDIA-A100-SXM4-80GB");
  EXPECT_EQ(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"].asString(), "2");
}

}  // namespace
}  // namespace plimsoll::testing
