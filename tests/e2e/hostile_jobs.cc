#include "tests/e2e/hostile_jobs.h"

namespace plimsoll::testing {
namespace {

const char* const kDlrm =
    "  model:\n    dlrm:\n      bottomMLP: [512, 64]\n      topMLP: [512, 1]\n      tables:\n"
    "        - {name: item, rows: 1000000, dim: 64}\n"
    "  training: {batchSizePerTrainer: 1024}\n  trainers: {replicas: 1, perNode: 1, gpuModel: A100-80GB}\n";

std::string manifest(const std::string& name, const std::string& spec) {
  return "apiVersion: plimsoll.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: " + name +
         ", namespace: default}\nspec:\n" + spec;
}

}  // namespace

std::vector<HostileJob> malformed_jobs() {
  const char* const templates[] = {
      "{spec: {volumes: {a: 1}, containers: [{name: trainer, image: none}]}}",
      "{spec: {volumes: x, containers: [{name: trainer, image: none}]}}",
      "{spec: {containers: [{name: trainer, image: none, resources: x}]}}",
      "{spec: {containers: [{name: trainer, image: none, resources: {limits: [1]}}]}}",
      "{spec: {containers: [{name: trainer, image: none, volumeMounts: {a: 1}}]}}",
      "{spec: {containers: [{name: trainer, image: none, env: [x, 1, null]}]}}",
      "{spec: {initContainers: [x], containers: [{name: trainer, image: none}]}}",
      "{metadata: {labels: x}, spec: {containers: [{name: trainer, image: none}]}}",
      "{metadata: {annotations: [1]}, spec: {containers: [{name: trainer, image: none}]}}",
      "{metadata: 1, spec: {containers: [{name: trainer, image: none}]}}"};
  std::vector<HostileJob> jobs;
  for (const char* const pods : templates) {
    const std::string name = "malformed-" + std::to_string(jobs.size());
    jobs.push_back({name, manifest(name, std::string(kDlrm) + "  template: " + pods + "\n")});
  }
  return jobs;
}

std::vector<HostileJob> huge_jobs() {
  const std::string pods =
      "  template: {spec: {containers: [{name: trainer, image: none, resources: {limits: {nvidia.com/gpu: 1}}}]}}\n";
  const std::string pipeline =
      "  model:\n    transformer: {layers: 65536, hidden: 1024, heads: 8, ffn: 4096, vocab: 32000, seqLen: "
      "512}\n"
      "  training:\n    batchSizePerTrainer: 1048576\n    gradientAccumulation: 1048576\n"
      "    parallelism: {pipeline: 512, pipelineChunks: 128}\n"
      "  trainers: {replicas: 512, perNode: 8, gpuModel: A100-80GB}\n";
  const std::string tables =
      "  model:\n    dlrm:\n      bottomMLP: [512, 64]\n      topMLP: [512, 1]\n      tables:\n"
      "        - {name: item, count: 100000, rows: 1000, dim: 64}\n"
      "  training: {batchSizePerTrainer: 1024}\n  trainers: {replicas: 8, perNode: 8, gpuModel: A100-80GB}\n";
  return {{"huge-pipeline", manifest("huge-pipeline", pipeline + pods)},
          {"huge-tables", manifest("huge-tables", tables + pods)}};
}

std::string objects_with_the_names_of(const std::string& job) {
  std::string text;
  for (const char* attempt : {"-0", "-1"}) {
    text += "apiVersion: v1\nkind: Service\nmetadata: {name: " + job + attempt +
            ", labels: {test: foreign, plimsoll.dev/job-name: " + job +
            "}}\nspec: {selector: {app: kafka}, ports: [{port: 9092}]}\n---\n";
  }
  return text + "apiVersion: batch/v1\nkind: Job\nmetadata: {name: " + job +
         "-0, labels: {test: foreign}}\nspec: {suspend: true, template: {spec: {restartPolicy: Never, "
         "containers: "
         "[{name: c, image: none}]}}}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: " +
         job + "-0-plan, labels: {test: foreign}}\ndata: {plan.json: '{}'}\n";
}

}  // namespace plimsoll::testing
