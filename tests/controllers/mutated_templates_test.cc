// Jobs whose pod template is wrong in every way: nothing that reads or changes it throws, validated or not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/yaml.h"
#include "controllers/attempt_plan.h"
#include "controllers/job_children.h"
#include "estimator/provisioner/patch.h"
#include "estimator/provisioner/provisioner.h"
#include "estimator/types/runtime_settings.h"
#include "remediation/host_memory.h"
#include "remediation/remediation.h"
#include "remediation/shared_memory.h"
#include "tests/testing/random_cases.h"
#include "tests/testing/random_seed.h"

namespace plimsoll::controllers {
namespace {

constexpr const char* kJob = R"(
apiVersion: plimsoll.dev/v1alpha1
kind: TrainingJob
metadata: {name: ads, namespace: team, uid: u-1, labels: {kueue.x-k8s.io/queue-name: q}, annotations: {a: b}}
spec:
  model: {dlrm: {topMLP: [8, 1], bottomMLP: [16, 8], tables: [{name: t, rows: 1000, dim: 8}]}}
  training: {batchSizePerTrainer: 8}
  trainers: {replicas: 4, gpuModel: A100-80GB}
  template:
    metadata: {labels: {team: ads}, annotations: {note: a}}
    spec:
      restartPolicy: OnFailure
      subdomain: a
      nodeSelector: {pool: gpu, nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}
      tolerations: [{key: k, operator: Exists}]
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions: [{key: zone, operator: In, values: [a, b]}]
      hostIPC: false
      volumes: [{name: v, emptyDir: {}}, {name: s, emptyDir: {medium: Memory, sizeLimit: 1Mi}}]
      initContainers: [{name: i, image: x, resources: {limits: {memory: 1Gi}}}]
      containers:
        - name: side
          image: x
        - name: trainer
          image: x
          terminationMessagePolicy: File
          env: [{name: PYTORCH_CUDA_ALLOC_CONF, value: "max_split_size_mb:64"}, {name: B, valueFrom: {fieldRef: {fieldPath: f}}}]
          resources: {limits: {memory: 80Gi, nvidia.com/gpu: 8}, requests: {memory: 80Gi}, claims: [{name: c}]}
          volumeMounts: [{name: v, mountPath: /v}, {name: s, mountPath: /dev/shm}]
)";

Json job_object() {
  Result<std::vector<Json>> documents = parse_yaml_documents(kJob);
  EXPECT_TRUE(documents.ok());
  return documents.ok() ? documents->front() : Json();
}

void collect(Json& value, std::vector<Json*>& places) {
  places.push_back(&value);
  if (value.isArray() || value.isObject()) {
    for (Json& each : value) {
      collect(each, places);
    }
  }
}

Json any_value(std::mt19937& random) {
  Json list(::Json::arrayValue);
  Json object(::Json::objectValue);
  switch (random() % 12) {
    case 0: return {};
    case 1: return true;
    case 2: return Json(-1);
    case 3: return Json(::Json::UInt64{18446744073709551615ULL});
    case 4: return Json(1e300);
    case 5: return "";
    case 6: return "x";
    case 7: return list;
    case 8: return object;
    case 9: list.append(Json()); return list;
    case 10: list.append("x"); return list;
    default: object["a"] = 1; return object;
  }
}

std::vector<estimator::AvailableGpu> gpus() {
  estimator::AvailableGpu gpu;
  gpu.model.name = "A100-80GB";
  gpu.model.memory = 80_GiB;
  gpu.total_gpus = gpu.free_gpus = 64;
  gpu.shapes = {{.gpus_per_node = 8, .nodes = 8}};
  gpu.product_labels = {"NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-PCIE-80GB"};
  return {gpu};
}

// All that the operator and the webhook do with a template. False: validation refuses the job.
bool run_through(const Json& object) {
  static const std::vector<estimator::AvailableGpu> kGpus = gpus();
  const Result<crds::TrainingJob> job = crds::decode_training_job(JsonView(object));
  if (!job) {
    return false;
  }
  const bool valid = crds::validate(*job).empty();
  crds::Attempt attempt;
  attempt.trainers = 4;
  attempt.per_node = 4;
  attempt.gpu_model = "A100-80GB";
  attempt.expandable_segments = true;
  const Result<AttemptChildren> children = make_children(
      *job, attempt, {.plan = "{}", .swap_plan = "{}", .host_memory = 1_GiB, .shared_memory = 1_GiB});
  EXPECT_TRUE(children.ok() || !valid) << write_json(object) << '\n' << to_string(children.error());
  estimator::Provision provision;
  provision.decision.emplace();
  provision.decision->gpu_model = "A100-80GB";
  provision.decision->trainers = 2;
  provision.decision->per_node = 2;
  for (const std::size_t labels : {1U, 2U}) {
    provision.decision->product_labels.assign(kGpus[0].product_labels.begin(),
                                              kGpus[0].product_labels.begin() + static_cast<long>(labels));
    (void)estimator::patch_for(*job, provision);
  }
  (void)remediation::raise_host_memory(*job, 500_GiB, "");
  (void)remediation::raise_host_memory(*job, 500_GiB, "i");
  (void)remediation::enlarge_shared_memory(*job, attempt, 500_GiB);
  std::vector<std::string> warnings;
  (void)estimator::runtime_settings_of(job->raw, warnings);
  std::vector<crds::Attempt> attempts = {attempt};
  for (const crds::Outcome outcome : {crds::Outcome::kCudaOutOfMemory, crds::Outcome::kHostOutOfMemory}) {
    attempts[0].outcome = outcome;
    attempts[0].shared_memory_full = outcome == crds::Outcome::kHostOutOfMemory;
    Budget budget({.deadline = std::chrono::steady_clock::now() - std::chrono::seconds(1)});
    (void)remediation::remediate({.job = &*job, .gpus = &kGpus, .attempts = &attempts, .budget = &budget});
  }
  return valid;
}

TEST(MutatedTemplates, TheJobItselfIsValid) {
  EXPECT_TRUE(run_through(job_object()));
}

// What stopped the operator: each place of the template, with a value of each kind.
TEST(MutatedTemplates, AnyTypeAnywhereIsAnErrorAndNeverAnException) {
  const unsigned seed = plimsoll::testing::random_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  int refused = 0;
  constexpr int kRuns = plimsoll::testing::random_cases(3'000);
  for (int run = 0; run < kRuns; ++run) {
    Json object = job_object();
    for (std::size_t changes = 1 + random() % 3; changes > 0; --changes) {
      std::vector<Json*> places;
      // Mostly in the template; in the metadata, too.
      collect(random() % 8 == 0 ? object["metadata"] : object["spec"]["template"], places);
      *places[random() % places.size()] = any_value(random);
      if (!object["spec"].isObject() || !object["metadata"].isObject()) {
        break;
      }
    }
    std::string text = write_json(object);
    try {
      refused += run_through(object) ? 0 : 1;
    } catch (const std::exception& thrown) {
      FAIL() << thrown.what() << " of " << text;
    }
  }
  EXPECT_GT(refused, kRuns / 4);
  EXPECT_LT(refused, kRuns);
}

}  // namespace
}  // namespace plimsoll::controllers
