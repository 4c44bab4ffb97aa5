// Real training: the pods of a TrainingJob are processes of this machine that train with PyTorch on the CPU,
// each with a budget for its tensors as if it had a card of 256 MiB.
#include <gmock/gmock.h>

#include "tests/checkout.h"
#include "tests/e2e/training_stage.h"
#include "tests/node_agent/node_agent.h"
#include "tests/testing/eventually.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr const char* kPython = "/usr/bin/python3";  // Debian's, with python3-torch
constexpr std::int64_t kCardBytes = 256 << 20;

class RealTrainingTest : public TrainingTest {
 protected:
  ApiServerOptions server_options() const override { return {.controller_manager = true, .scheduler = true}; }

  void SetUp() override {
    if (run_command({kPython, "-c", "import torch"}).exit_code != 0) {
      GTEST_SKIP() << kPython << " has no torch: install python3-torch";
    }
    TrainingTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) {
      return;
    }
    // A card of its own, and what people know of it: gloo holds nothing on it.
    must({"create", "-f", "-"}, R"(
apiVersion: plimsoll.dev/v1alpha1
kind: GPUModel
metadata: {name: test-card}
spec: {productLabels: [Plimsoll-Test-Card], memory: 270Mi, cudaContext: 1Mi}
---
apiVersion: plimsoll.dev/v1alpha1
kind: MemoryProfile
metadata: {name: recommender, namespace: default}
spec: {family: recommender, bounds: [{gpuModel: test-card, communication: 1Mi}]}
)");
    NodeAgent::Options options;
    options.gpus = 8;
    options.labels = {{"nvidia.com/gpu.product", "Plimsoll-Test-Card"},
                      {"nvidia.com/gpu.memory", "270"},  // 5 % are taken to be the driver's
                      {"nvidia.com/gpu.count", "8"}};
    options.environment = {{"PYTHONPATH", PLIMSOLL_SOURCE_DIR "/trainer"},
                           {"PYTHONDONTWRITEBYTECODE", "1"},
                           {"OMP_NUM_THREADS", "1"},
                           {"GLOO_SOCKET_IFNAME", "lo"},
                           {"PLIMSOLL_DEVICE_BUDGET_BYTES", std::to_string(kCardBytes)}};
    Result<std::unique_ptr<NodeAgent>> node = NodeAgent::start(*server_, std::move(options));
    ASSERT_TRUE(node.ok()) << to_string(node.error());
    node_ = *std::move(node);
    ASSERT_NO_FATAL_FAILURE(start_operator());
    ASSERT_NO_FATAL_FAILURE(wait_until_counted("test-card", 8));
    start_webhook();
  }

  // Its spec leaves out what the script does: gradients of whole tables, which plain SGD on torch 1.13 keeps.
  static std::string manifest(const std::string& name) {
    return R"(
apiVersion: plimsoll.dev/v1alpha1
kind: TrainingJob
metadata: {name: )" +
           name + R"(, namespace: default}
spec:
  model:
    family: recommender
    dlrm:
      denseFeatures: 13
      bottomMLP: [64, 16]
      topMLP: [64, 1]
      tables:
        - {name: user, rows: 800000, dim: 16}
        - {name: item, count: 4, rows: 600000, dim: 16}
  training: {batchSizePerTrainer: 256, optimizer: SGD, embeddingOptimizer: SGD}
  provisioning: {maxTrainers: 8}
  trainers: {replicas: 8, perNode: 1}
  template:
    spec:
      containers:
        - name: trainer
          image: none
          command: [)" +
           kPython + R"(, -m, plimsoll.signposts]
          args: [)" PLIMSOLL_SOURCE_DIR R"(/tests/e2e/training/recommender.py, /etc/plimsoll/plan.json]
          resources: {limits: {nvidia.com/gpu: 1}}
)";
  }

  std::int64_t create(const std::string& name) {
    must({"create", "-f", "-"}, manifest(name));
    return replicas_of(live(name));
  }

  std::int64_t admitted(const std::string& name) const {
    const Result<Json> object =
        parse_json(must({"create", "--dry-run=server", "-o", "json", "-f", "-"}, manifest(name)).output);
    return object ? replicas_of(*object) : 0;
  }

  std::unique_ptr<NodeAgent> node_;
};

TEST_F(RealTrainingTest, OutOfMemoryIsSurvivedAndLearnedFrom) {
  const std::int64_t trainers = create("first");
  ASSERT_GT(trainers, 0);
  ASSERT_LT(trainers, 8) << annotation(live("first"), "provisioning-reason");
  const Json job = wait_for_end("first", 200s);
  ASSERT_TRUE(is_true(job, "Succeeded")) << story("first");
  const std::vector<std::string> outcomes = outcomes_of(job);
  ASSERT_GE(outcomes.size(), 2U) << story("first");
  EXPECT_EQ(outcomes.front(), "CUDAOutOfMemory");
  const Json& attempts = attempts_of(job);
  EXPECT_THAT(attempts[0]["message"].asString(), HasSubstr("CUDA out of memory. Tried to allocate"));
  const std::int64_t grown = replicas_of(job);
  EXPECT_GT(grown, trainers);
  // PyTorch's own figure, out of the processes that trained: more than was thought, and within the card.
  const Json& last = attempts[attempts.size() - 1];
  EXPECT_GT(last["observedPeakBytes"].asInt64(), 0) << story("first");
  EXPECT_LE(last["observedPeakBytes"].asInt64(), kCardBytes);

  EXPECT_TRUE(eventually(
      "the family has learned", [&] { return admitted("next"); }, ::testing::Gt(trainers)));
  const std::int64_t given = create("next");
  EXPECT_GT(given, trainers) << must({"get", "memoryprofiles", "-o", "yaml"}).output << operator_->log();
  const Json next = wait_for_end("next", 120s);
  EXPECT_THAT(outcomes_of(next), ::testing::ElementsAre("Succeeded")) << story("next");
}

}  // namespace
}  // namespace plimsoll::testing
