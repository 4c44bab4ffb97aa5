// Runs a subcommand within the test, with streams that the test holds.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "cli/command.h"
#include "cli/subcommands.h"
#include "tests/checkout.h"

namespace plimsoll::testing {

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;

  Json json() const {
    Result<Json> value = parse_json(out);
    EXPECT_TRUE(value.ok()) << out;
    return value ? *value : Json();
  }
};

using Subcommand = int (*)(const std::vector<std::string>&, cli::Console&);

// Answers have no limit of time unless the test gives one: under sanitizers, and beside other tests, they take many times as long.
inline Outcome run(Subcommand command, std::vector<std::string> arguments, const std::string& input = {}) {
  const auto is_given = [&](const char* option) {
    return std::find(arguments.begin(), arguments.end(), option) != arguments.end();
  };
  const bool has_timeout = command == cli::run_estimate || command == cli::run_provision ||
                           command == cli::run_shard || command == cli::run_swap;
  if (has_timeout && !is_given("--timeout") && !is_given("--help")) {
    arguments.insert(arguments.end(), {"--timeout", "24h"});
  }
  std::istringstream in(input);
  std::ostringstream out;
  std::ostringstream err;
  cli::Console console{in, out, err};
  Outcome outcome;
  outcome.code = command(arguments, console);
  outcome.out = out.str();
  outcome.err = err.str();
  return outcome;
}

inline std::string source_file(const std::string& path) {
  return std::string(PLIMSOLL_SOURCE_DIR) + "/" + path;
}

// 1 + 1 pods of 8 GPUs, whose model kDescription describes.
inline constexpr const char* kPyTorchJob = R"(
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: tuned
  namespace: team
  annotations: {plimsoll.dev/model: described/model}
spec:
  pytorchReplicaSpecs:
    Master: {template: &pod {spec: {containers: [{name: pytorch, resources: {limits: {cpu: null, nvidia.com/gpu: 8}}}]}}}
    Worker: {replicas: 1, template: *pod}
)";

inline constexpr const char* kDescription = R"(---
apiVersion: v1
kind: ConfigMap
metadata: {name: described, namespace: team}
data:
  model: |
    model: {transformer: {layers: 4, hidden: 256, heads: 4, ffn: 1024, vocab: 1000, seqLen: 128}}
    training: {batchSizePerTrainer: 2, precision: BF16Mixed, optimizer: AdamW}
)";

// A job of 400 GiB of tables asking for 64 trainers.
inline constexpr const char* kJob = R"(apiVersion: plimsoll.dev/v1alpha1
kind: TrainingJob
metadata: {name: ads, namespace: team}
spec:
  model:
    family: ads
    dlrm:
      denseFeatures: 13
      bottomMLP: [64]
      topMLP: [128, 1]
      interaction: Cat
      tables:
        - {name: t, count: 400, rows: 2097152, dim: 128}
  training: {batchSizePerTrainer: 512}
  trainers: {replicas: 64, perNode: 8, gpuModel: A100-80GB}
  template: {spec: {containers: [{name: trainer}]}}
)";

// Two nodes of eight A100-80GB.
inline constexpr const char* kCluster = R"(apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: Node
    metadata: {name: n0, labels: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB, nvidia.com/gpu.memory: "81920"}}
    status: {allocatable: {nvidia.com/gpu: "8"}}
  - apiVersion: v1
    kind: Node
    metadata: {name: n1, labels: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB, nvidia.com/gpu.memory: "81920"}}
    status: {allocatable: {nvidia.com/gpu: "8"}}
)";

}  // namespace plimsoll::testing
