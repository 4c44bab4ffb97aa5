#include "webhook/mutate_workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/json/edit.h"
#include "base/yaml.h"
#include "tests/webhook/samples.h"

namespace plimsoll::webhook {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::patched;
using testing::sample_view;

constexpr crds::ProvisioningMode kAuto = crds::ProvisioningMode::kAuto;
constexpr crds::ProvisioningMode kOff = crds::ProvisioningMode::kOff;

// Texts of ConfigMaps, by "namespace/name/key".
class Texts : public estimator::ModelSource {
 public:
  Result<estimator::SharedTables> tables(const std::string&, const crds::TablesFrom&, Budget*) override {
    return Error(ErrorCode::kNotFound, "there are no tables");
  }
  Result<estimator::SharedGraph> graph(const std::string&, const crds::GraphReference&, Budget*) override {
    return Error(ErrorCode::kNotFound, "there are no graphs");
  }
  Result<estimator::SharedText> text(const std::string& namespace_name, const std::string& name,
                                     const std::string& key, Budget*) override {
    const auto found = held.find(namespace_name + "/" + name + "/" + key);
    if (found == held.end()) {
      return Error(ErrorCode::kNotFound, "there is no ConfigMap " + name);
    }
    return std::make_shared<const std::string>(found->second);
  }

  std::map<std::string, std::string> held;
};

// Llama 3 8B, fully sharded: two A100 of 80 GiB hold it.
const char* const kLlama = R"(
model:
  transformer:
    seqLen: 8192
    attention: SDPA
    layers: 32
    hidden: 4096
    heads: 32
    kvHeads: 8
    ffn: 14336
    vocab: 128256
training:
  batchSizePerTrainer: 1
  precision: BF16Mixed
  optimizer: AdamW
  activationCheckpointing: Full
  parallelism: {strategy: FSDP2}
)";

const char* const kJob = R"(
apiVersion: batch/v1
kind: Job
metadata:
  name: llama
  namespace: research
  labels: {plimsoll.dev/family: llama-3-8b}
  annotations: {plimsoll.dev/model: llama/model.yaml}
spec:
  completionMode: Indexed
  parallelism: 4
  completions: 4
  template:
    spec:
      containers:
        - name: main
          command: [torchrun, --nnodes=4, --nproc-per-node=8, train.py]
          resources: {limits: {nvidia.com/gpu: 8}}
)";

const char* const kPyTorchJob = R"(
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: llama
  namespace: research
  labels: {plimsoll.dev/family: llama-3-8b}
  annotations: {plimsoll.dev/model: llama/model.yaml}
spec:
  pytorchReplicaSpecs:
    Master: {replicas: 1, template: {spec: {containers: [{name: pytorch, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
    Worker: {replicas: 3, template: {spec: {containers: [{name: pytorch, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
)";

Json yaml(const std::string& text) {
  return parse_yaml_documents(text)->front();
}

const char* const kTrainJob = R"(
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: llama
  namespace: research
  annotations: {trainer.kubeflow.org/autoconf-plugin: plimsoll, plimsoll.dev/model: llama/model.yaml}
spec:
  runtimeRef: {apiGroup: trainer.kubeflow.org, kind: ClusterTrainingRuntime, name: torch-distributed}
  trainer: {numNodes: 4, resourcesPerNode: {limits: {nvidia.com/gpu: 8}}}
)";

// The runtime and the definition of kTrainJob.
class Objects : public workloads::ObjectSource {
 public:
  Result<Json> object(const workloads::ObjectName& name, Budget*) override {
    if (missing) {
      return Error(ErrorCode::kNotFound, name.name + " not found");
    }
    return yaml_of(name.plural == "clustertrainingruntimes" ? R"(
spec:
  mlPolicy: {numNodes: 1, torch: {numProcPerNode: auto}}
  template:
    spec:
      replicatedJobs:
        - name: node
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec: {template: {spec: {containers: [{name: node, command: [torchrun, train.py]}]}}}
)"
                                                            : R"(
spec: {versions: [{name: v1alpha1, schema: {openAPIV3Schema: {properties: {spec: {properties: {runtimePatches: {}}}}}}}]}
)");
  }

  bool missing = false;

 private:
  static Json yaml_of(const std::string& text) { return parse_yaml_documents(text)->front(); }
};

class MutateWorkload : public ::testing::Test {
 protected:
  MutateWorkload() { texts_.held["research/llama/model.yaml"] = kLlama; }

  Mutation mutated(const Json& object, crds::ProvisioningMode mode = kAuto) {
    Json review = testing::sample_review(object);
    const std::string version = object["apiVersion"].asString();
    review["request"]["kind"]["group"] = version.substr(0, version.find('/'));
    review["request"]["kind"]["version"] = version.substr(version.find('/') + 1);
    review["request"]["kind"]["kind"] = object["kind"];
    review["request"]["namespace"] = object["metadata"]["namespace"];
    Decoded decoded = decode_review(write_json(review));
    EXPECT_FALSE(decoded.error) << decoded.error->message;
    return mutate_workload(decoded.request, {.cluster = view_.get(),
                                             .tables = &texts_,
                                             .objects = &objects_,
                                             .policy = cluster_policy,
                                             .namespace_mode = mode});
  }

  crds::ClusterPolicy cluster_policy;

  Json admitted(const Json& object) { return patched(object, mutated(object).answer.patch); }

  void expect_untouched(const Json& object, const char* reason, const char* warning = nullptr) {
    const Mutation mutation = mutated(object);
    EXPECT_TRUE(mutation.answer.allowed);
    EXPECT_TRUE(mutation.answer.patch.isNull() || mutation.answer.patch.empty())
        << write_json(mutation.answer.patch);
    EXPECT_EQ(mutation.reason, reason) << mutation.message;
    if (warning == nullptr) {
      EXPECT_THAT(mutation.answer.warnings, IsEmpty());
    } else {
      EXPECT_THAT(mutation.answer.warnings, Contains(HasSubstr(warning)));
    }
  }

  std::shared_ptr<const estimator::ClusterView> view_ = sample_view();
  Texts texts_;
  Objects objects_;
};

TEST_F(MutateWorkload, AJobGetsTheGpuModelAndKeepsItsNumber) {
  const Json job = yaml(kJob);
  const Json after = admitted(job);
  EXPECT_EQ(after["spec"]["parallelism"], 4);
  EXPECT_FALSE(
      text_member(after, {"spec", "template", "spec", "nodeSelector", "nvidia.com/gpu.product"}).empty());
  EXPECT_FALSE(text_member(after, {"metadata", "annotations", crds::kDecisionAnnotation}).empty());
  EXPECT_EQ(after["spec"]["template"]["spec"]["containers"][0]["name"], "main");
  EXPECT_EQ(after["spec"]["template"]["spec"]["containers"][0]["command"],
            job["spec"]["template"]["spec"]["containers"][0]["command"]);
}

TEST_F(MutateWorkload, ItsOwnResultNeedsNoPatch) {
  for (const char* text : {kJob, kPyTorchJob}) {
    for (const char* policy : {"AvoidOOM", "FewestGPUs"}) {
      Json object = yaml(text);
      object["metadata"]["annotations"]["plimsoll.dev/policy"] = policy;
      const Json after = admitted(object);
      EXPECT_NE(after, object);
      const Mutation again = mutated(after);
      EXPECT_TRUE(again.answer.patch.empty()) << write_json(again.answer.patch);
      EXPECT_EQ(again.gpus_saved, 0);
    }
  }
}

TEST_F(MutateWorkload, TheFewestGpusAreGivenWhereThePolicySaysSo) {
  Json job = yaml(kJob);
  job["metadata"]["annotations"]["plimsoll.dev/policy"] = "FewestGPUs";
  const Mutation mutation = mutated(job);
  EXPECT_GT(mutation.gpus_saved, 0) << mutation.message;
  const Json after = patched(job, mutation.answer.patch);
  EXPECT_EQ(after["spec"]["parallelism"], 1);
  EXPECT_EQ(after["spec"]["completions"], 1);
  const Json& container = after["spec"]["template"]["spec"]["containers"][0];
  const std::string gpus = container["resources"]["limits"]["nvidia.com/gpu"].asString();
  EXPECT_LT(std::stoi(gpus), 8);
  EXPECT_EQ(container["command"][1], "--nnodes=1");
  EXPECT_EQ(container["command"][2], "--nproc-per-node=" + gpus);
}

TEST_F(MutateWorkload, MoreWorkersAreGivenWhereTheJobWouldRunOutOfMemory) {
  // Llama 3 70B, 4 GPUs: 4 x 80 GiB do not hold 16 B a parameter.
  std::string large = kLlama;
  const auto put = [&](const std::string& from, const std::string& to) {
    large.replace(large.find(from), from.size(), to);
  };
  put("layers: 32", "layers: 80");
  put("hidden: 4096", "hidden: 8192");
  put("heads: 32", "heads: 64");
  put("ffn: 14336", "ffn: 28672");
  texts_.held["research/llama/model.yaml"] = large;
  const Json job = yaml(kPyTorchJob);
  const Mutation mutation = mutated(job);
  const Json after = patched(job, mutation.answer.patch);
  EXPECT_GT(after["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"].asInt64(), 3) << mutation.message;
  EXPECT_EQ(after["spec"]["pytorchReplicaSpecs"]["Master"]["replicas"], 1);
  for (const char* role : {"Master", "Worker"}) {
    const Json& spec = after["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"];
    EXPECT_FALSE(text_member(spec, {"nodeSelector", "nvidia.com/gpu.product"}).empty()) << role;
  }
}

TEST_F(MutateWorkload, ModeOffWritesAnnotationsAlone) {
  const Json job = yaml(kJob);
  const Mutation mutation = mutated(job, kOff);
  EXPECT_EQ(mutation.reason, "AlreadyRight");
  Json after = patched(job, mutation.answer.patch);
  EXPECT_FALSE(text_member(after, {"metadata", "annotations", crds::kReasonAnnotation}).empty());
  EXPECT_EQ(after["spec"], job["spec"]);
  EXPECT_EQ(mutation.gpus_saved, 0);

  Json opted = job;
  opted["metadata"]["annotations"]["plimsoll.dev/mode"] = "Auto";
  EXPECT_NE(patched(opted, mutated(opted, kOff).answer.patch)["spec"], job["spec"]);
  opted["metadata"]["annotations"]["plimsoll.dev/mode"] = "Off";
  EXPECT_EQ(patched(opted, mutated(opted, kAuto).answer.patch)["spec"], job["spec"]);
  opted["metadata"]["annotations"]["plimsoll.dev/mode"] = "on";
  expect_untouched(opted, "Malformed", "must be Auto or Off, is on");

  opted["metadata"]["annotations"]["plimsoll.dev/mode"] = "Auto";
  cluster_policy.advice_only = true;
  EXPECT_EQ(patched(opted, mutated(opted, kAuto).answer.patch)["spec"], job["spec"]);
}

TEST_F(MutateWorkload, AnUncertainArgumentKeepsTheNumber) {
  Json job = yaml(kJob);
  job["metadata"]["annotations"]["plimsoll.dev/policy"] = "FewestGPUs";
  job["spec"]["template"]["spec"]["containers"][0]["command"][1] = "--nnodes=2:4";
  const Mutation mutation = mutated(job);
  EXPECT_THAT(mutation.answer.warnings, Contains(HasSubstr("the number of pods stays: --nnodes is 2:4")));
  const Json after = patched(job, mutation.answer.patch);
  EXPECT_EQ(after["spec"]["parallelism"], 4);
  EXPECT_EQ(after["spec"]["template"]["spec"]["containers"], job["spec"]["template"]["spec"]["containers"]);
}

TEST_F(MutateWorkload, WhatHasNotOptedInIsLeftAlone) {
  Json job = yaml(kJob);
  job["metadata"].removeMember("labels");
  expect_untouched(job, "NotOptedIn");
  job = yaml(kJob);
  job["metadata"]["annotations"]["plimsoll.dev/provisioning"] = "disabled";
  expect_untouched(job, "Disabled");
  job = yaml(kJob);
  job["metadata"]["ownerReferences"][0] = json_object({{"kind", "JobSet"}, {"controller", true}});
  expect_untouched(job, "OwnedByAnother");
  job = yaml(kJob);
  job["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue";
  expect_untouched(job, "ManagedElsewhere");
  job = yaml(kJob);
  job["kind"] = "CronJob";
  expect_untouched(job, "NotAWorkload");
}

TEST_F(MutateWorkload, ATrainJobThatNamesUsAsItsPluginIsSized) {
  Json job = yaml(kTrainJob);
  job["metadata"]["annotations"]["plimsoll.dev/policy"] = "FewestGPUs";
  const Json after = admitted(job);
  const Json& trainer = after["spec"]["trainer"];
  EXPECT_EQ(trainer["numNodes"], 1);
  const std::string gpus = trainer["resourcesPerNode"]["limits"]["nvidia.com/gpu"].asString();
  EXPECT_LT(std::stoi(gpus), 8);
  EXPECT_EQ(trainer["resourcesPerNode"]["requests"]["nvidia.com/gpu"].asString(), gpus);
  EXPECT_EQ(after["spec"]["runtimePatches"][0]["manager"], "plimsoll.dev/webhook");
  const Mutation again = mutated(after);
  EXPECT_TRUE(again.answer.patch.empty()) << write_json(again.answer.patch);

  const Json advised = patched(job, mutated(job, kOff).answer.patch);
  EXPECT_EQ(advised["spec"], job["spec"]);
  EXPECT_FALSE(text_member(advised, {"metadata", "annotations", crds::kReasonAnnotation}).empty());

  job["metadata"]["annotations"]["trainer.kubeflow.org/autoconf-plugin"] = "another";
  expect_untouched(job, "NotOptedIn");
  objects_.missing = true;
  expect_untouched(yaml(kTrainJob), "RuntimeUnknown", "runtime of spec.runtimeRef");
}

TEST_F(MutateWorkload, AFeatureThatIsOffIsNamed) {
  cluster_policy.gates = *crds::FeatureGates::parse({"TrainerAutoconfPlugin=false"});
  const char* const no_plugin = "the feature gate TrainerAutoconfPlugin is off";
  expect_untouched(yaml(kTrainJob), "FeatureOff", no_plugin);
  Json labelled = yaml(kTrainJob);
  labelled["metadata"]["labels"]["plimsoll.dev/family"] = "llama-3-8b";
  EXPECT_FALSE(mutated(labelled).answer.patch.empty()) << "the label opts in without the plugin";
  EXPECT_FALSE(mutated(yaml(kJob)).answer.patch.empty());

  cluster_policy.gates = *crds::FeatureGates::parse({"WorkloadSizing=false"});
  const char* const no_sizing = "the feature gate WorkloadSizing is off";
  for (const char* object : {kJob, kPyTorchJob, kTrainJob}) {
    expect_untouched(yaml(object), "FeatureOff", no_sizing);
  }
  Json other = yaml(kJob);
  other["metadata"].removeMember("labels");
  expect_untouched(other, "NotOptedIn");
}

TEST_F(MutateWorkload, TheFamilysProfileDescribesTheModelWhereNoAnnotationDoes) {
  Json profile = yaml(std::string("apiVersion: plimsoll.dev/v1alpha1\nkind: MemoryProfile\n") +
                      "metadata: {name: llama, namespace: research}\nspec: {family: llama-3-8b}");
  const Json described = yaml(kLlama);
  profile["spec"]["model"] = described["model"];
  profile["spec"]["training"] = described["training"];
  const auto use = [&] {
    view_ = estimator::make_cluster_view(estimator::GpuCatalog::built_in(), testing::sample_gpu_models(),
                                         {profile});
  };
  use();
  Json job = yaml(kJob);
  const Json annotated = admitted(job);
  job["metadata"]["annotations"].removeMember("plimsoll.dev/model");
  const Json after = admitted(job);
  EXPECT_NE(after["spec"], job["spec"]);
  EXPECT_EQ(after["spec"], annotated["spec"]);
  // The annotation comes first.
  job["metadata"]["annotations"]["plimsoll.dev/model"] = "other/model.yaml";
  expect_untouched(job, "ModelUnknown", "there is no ConfigMap other");

  job["metadata"]["annotations"].removeMember("plimsoll.dev/model");
  job["metadata"]["labels"]["plimsoll.dev/family"] = "another";
  expect_untouched(job, "ModelUnknown", "spec.training of the MemoryProfile of its family");
  profile["spec"]["training"]["batchSizePerTrainer"] = 0;
  use();
  job["metadata"]["labels"]["plimsoll.dev/family"] = "llama-3-8b";
  expect_untouched(job, "ModelUnknown", "spec.training of the MemoryProfile of its family");
}

TEST_F(MutateWorkload, WhatIsMissingIsSaid) {
  Json job = yaml(kJob);
  job["metadata"].removeMember("annotations");
  expect_untouched(job, "ModelUnknown", "annotation plimsoll.dev/model names a ConfigMap's key");
  job = yaml(kJob);
  job["metadata"]["annotations"]["plimsoll.dev/model"] = "llama";
  expect_untouched(job, "Malformed", "must be CONFIGMAP/KEY");
  job["metadata"]["annotations"]["plimsoll.dev/model"] = "other/model.yaml";
  expect_untouched(job, "ModelUnknown", "there is no ConfigMap other");
  texts_.held["research/llama/model.yaml"] = "model: {transformer: {layers: many}}";
  expect_untouched(yaml(kJob), "Malformed", "spec.model.transformer.layers");
  texts_.held["research/llama/model.yaml"] = std::string(kLlama) + "  globalBatchSize: 8\n";
  expect_untouched(yaml(kJob), "Malformed", "globalBatchSize");
  job = yaml(kJob);
  job["metadata"]["annotations"]["plimsoll.dev/policy"] = "Least";
  texts_.held["research/llama/model.yaml"] = kLlama;
  expect_untouched(job, "Malformed", "must be AvoidOOM or FewestGPUs");
  job = yaml(kJob);
  job["spec"]["template"]["spec"]["containers"][0].removeMember("resources");
  expect_untouched(job, "Unsupported", "no container requests nvidia.com/gpu");
}

TEST_F(MutateWorkload, AnObjectOfAnyShapeIsAdmitted) {
  for (const char* spec : {"null", "[]", "7", "{template: []}", "{template: {spec: {containers: {a: 1}}}}",
                           "{parallelism: 1, template: {spec: {containers: [null, 1, []]}}}"}) {
    Json job = yaml(kJob);
    job["spec"] = yaml("{spec: " + std::string(spec) + "}")["spec"];
    const Mutation mutation = mutated(job);
    EXPECT_TRUE(mutation.answer.allowed);
    EXPECT_FALSE(mutation.applied) << spec;
  }
}

}  // namespace
}  // namespace plimsoll::webhook
