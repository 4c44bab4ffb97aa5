// A job that no GPU of the cluster holds: admitted with a swap plan, and trained to its end under it, as a process of this machine
// whose virtual devices have the memory that the plan may use.
#include <gmock/gmock.h>

#include <algorithm>
#include <memory>

#include "tests/checkout.h"
#include "tests/controlplane/scratch_directory.h"
#include "tests/e2e/training_stage.h"
#include "tests/node_agent/node_agent.h"
#include "tests/testing/eventually.h"

namespace plimsoll::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr const char* kPython = "/usr/bin/python3";  // Debian's, with python3-torch
constexpr const char* kScripts = PLIMSOLL_SOURCE_DIR "/tests/e2e/training";
constexpr const char* kWidth = "256";  // weights, gradients and AdamW's states take 51 MB
constexpr int kCardMib = 64;

class SwapTrainingTest : public TrainingTest {
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
    export_model();
    must({"create", "-f", "-"}, R"(
apiVersion: plimsoll.dev/v1alpha1
kind: GPUModel
metadata: {name: t4}
spec: {cudaContext: 1Mi}
)");
    NodeAgent::Options options;
    options.gpus = 2;
    options.labels = {{"nvidia.com/gpu.product", "Tesla-T4"},
                      {"nvidia.com/gpu.memory", std::to_string(kCardMib)},
                      {"nvidia.com/gpu.count", "2"},
                      {"plimsoll.dev/peer-to-peer", "true"}};
    options.environment = {{"PYTHONPATH", PLIMSOLL_SOURCE_DIR "/trainer"},
                           {"PYTHONDONTWRITEBYTECODE", "1"},
                           {"OMP_NUM_THREADS", "1"}};
    Result<std::unique_ptr<NodeAgent>> node = NodeAgent::start(*server_, std::move(options));
    ASSERT_TRUE(node.ok()) << to_string(node.error());
    node_ = *std::move(node);
    ASSERT_NO_FATAL_FAILURE(start_operator());
    ASSERT_NO_FATAL_FAILURE(wait_until_counted("t4", 2));
    start_webhook();
  }

  void export_model() {
    Result<std::unique_ptr<ScratchDirectory>> folder = ScratchDirectory::create();
    ASSERT_TRUE(folder.ok()) << to_string(folder.error());
    const std::string file = (*folder)->file("graph.json.gz");
    const CommandResult exported =
        run_command({"/usr/bin/env", "PYTHONPATH=" PLIMSOLL_SOURCE_DIR "/trainer:" + std::string(kScripts),
                     "PYTHONDONTWRITEBYTECODE=1", std::string("HARMONY_GPT_WIDTH=") + kWidth, kPython, "-m",
                     "plimsoll.export", "harmony_gpt:exported", "--batch-size", "4", "-o", file});
    ASSERT_EQ(exported.exit_code, 0) << exported.errors;
    must({"create", "configmap", "small-gpt", "--from-file=graph.json.gz=" + file});
  }

  static std::string manifest(const std::string& name, const std::string& placement) {
    return R"(
apiVersion: plimsoll.dev/v1alpha1
kind: TrainingJob
metadata: {name: )" +
           name + R"(, namespace: default}
spec:
  model: {family: small-gpt, graph: {configMapKeyRef: {name: small-gpt, key: graph.json.gz}}}
  training: {batchSizePerTrainer: 4, optimizer: AdamW}
  provisioning: {placement: )" +
           placement + R"(, maxTrainers: 2}
  trainers: {replicas: 2, perNode: 2}
  template:
    spec:
      containers:
        - name: trainer
          image: none
          env: [{name: HARMONY_GPT_WIDTH, value: ")" +
           kWidth + R"("}]
          command: [)" +
           kPython + R"(, -m, plimsoll.signposts]
          args: [)" +
           kScripts +
           R"(/harmony_gpt.py, --steps, "8"]
)";
  }

  std::unique_ptr<NodeAgent> node_;
};

TEST_F(SwapTrainingTest, WhatNoGpuHoldsTrainsThroughTheHostToItsEnd) {
  // As it is by default, the job is told that nothing holds it, and what would.
  const CommandResult unfit =
      must({"create", "--dry-run=server", "-f", "-"}, manifest("in-gpu-memory", "HBM"));
  EXPECT_THAT(unfit.errors, HasSubstr("no allowed GPU of the cluster can run this job"));

  const CommandResult created = must({"create", "-f", "-"}, manifest("through-host", "HBMOrSwap"));
  EXPECT_THAT(created.errors, AllOf(HasSubstr("2 x T4 train the job through host memory"),
                                    HasSubstr("times what it would take in GPU memory")));
  EXPECT_THAT(annotation(live("through-host"), "provisioning-decision"), HasSubstr(R"("swapPlan":"v)"));

  const Json job = wait_for_end("through-host", 200s);
  ASSERT_TRUE(is_true(job, "Succeeded")) << story("through-host");
  EXPECT_THAT(outcomes_of(job), ElementsAre("Succeeded")) << story("through-host");
  EXPECT_TRUE(is_true(job, "Provisioned"));

  const Json& swap = job["status"]["swapPlan"];
  EXPECT_EQ(swap["gpus"].asInt(), 2) << story("through-host");
  EXPECT_EQ(swap["layers"].asInt(), 8) << "the embedding, six blocks, the head";
  EXPECT_GT(std::stod(swap["slowdown"].asString()), 1);
  EXPECT_GE(std::stod(swap["iterationSeconds"].asString()), std::stod(swap["lowerBoundSeconds"].asString()));
  EXPECT_EQ(job["status"]["globalBatchSize"].asInt(), 8) << "that of the two requested trainers";
  const Json& attempt = attempts_of(job)[0];
  EXPECT_TRUE(attempt["swapPlan"].asBool());
  EXPECT_EQ(attempt["trainers"].asInt(), 2);
  EXPECT_EQ(attempt["hostMemoryBytes"], swap["hostMemoryBytes"]);

  // The plan that the container had, and what its devices took of it.
  const Result<Json> plan =
      parse_json(get("configmaps", "through-host-0-plan")["data"]["swap.json"].asString());
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)["mode"], swap["mode"]);
  EXPECT_LT((*plan)["deviceBytes"].asInt64(), std::int64_t{kCardMib} << 20);
  EXPECT_GT(attempt["observedPeakBytes"].asInt64(), 0) << story("through-host");
  EXPECT_LE(attempt["observedPeakBytes"].asInt64(), (*plan)["deviceBytes"].asInt64());

  // What it measured of its node is what the family's next plan is for.
  EXPECT_GT(attempt["observedHostUpdateBytesPerSecond"].asInt64(), 0) << story("through-host");
  EXPECT_TRUE(eventually("the family's profile has the rate of the node's updates",
                         [&] {
                           const Json bounds = get("memoryprofiles", "small-gpt")["status"]["bounds"];
                           return std::any_of(bounds.begin(), bounds.end(), [](const Json& entry) {
                             return entry["gpuModel"] == "t4" && entry["hostUpdateBandwidth"].isString();
                           });
                         }))
      << must({"get", "memoryprofiles", "-o", "yaml"}).output << operator_->log();
}

}  // namespace
}  // namespace plimsoll::testing
