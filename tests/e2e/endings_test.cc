// Endings that strangers posted, on the real control plane: the kubelet reports the last lines of the log as the termination message, and what
// Plimsoll makes of them decides the next attempt (tests/remediation/public_endings.yaml has many more).
#include <gmock/gmock.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/training_stage.h"
#include "tests/testing/eventually.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;

std::string traceback(const std::string& error) {
  return "Traceback (most recent call last):\n  File \"/app/train.py\", line 88, in <module>\n    main()\n" +
         error + "\n";
}

class EndingsTest : public TrainingTest {
 protected:
  void SetUp() override {
    TrainingTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) {
      return;
    }
    for (int i = 0; i < kNodes; ++i) {
      add_node("a100-" + std::to_string(i));
    }
    ASSERT_NO_FATAL_FAILURE(start_operator());
    ASSERT_NO_FATAL_FAILURE(wait_for_gpus(kNodes * 8));
    ASSERT_NO_FATAL_FAILURE(start_webhook());
  }

  // The pods of its first attempt end so, and those of the next succeed.
  void create(const std::string& name, const std::string& log) {
    must({"create", "-f", "-"}, manifest(name, {{"failure-message", log}}).text());
  }

  static TrainingJobManifest manifest(const std::string& name, std::map<std::string, std::string> ending) {
    ending.insert({{"outcome-of-attempt-0", "fail"}, {"run-for", "1s"}});
    return {.name = name, .max_trainers = 8, .annotations = std::move(ending)};
  }

  Json ended_as(const std::string& name, const std::vector<std::string>& outcomes) {
    const Json job = wait_for_end(name, 120s);
    EXPECT_EQ(outcomes_of(job), outcomes) << story(name);
    return job;
  }

  static constexpr int kNodes = 6;
};

TEST_F(EndingsTest, WhatCanBeCuredIsTriedAgainAndWhatCannotIsNot) {
  create("cudnn", traceback("RuntimeError: Unable to find a valid cuDNN algorithm to run convolution"));
  create("jax", traceback("jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: "
                          "PjRT_Client_Connect::0"));
  create("mistake", traceback("TypeError: forward() got an unexpected keyword argument 'labels'"));
  ended_as("cudnn", {"CUDAOutOfMemory", "Succeeded"});
  ended_as("jax", {"InfrastructureFailure", "Succeeded"});
  EXPECT_TRUE(is_true(ended_as("mistake", {"UserError"}), "Failed"));
}

// The memory limit grew, which left /dev/shm at 64 MiB.
TEST_F(EndingsTest, AFullShmGetsALargerOne) {
  create("shm",
         traceback(
             "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system "
             "error\nError while creating shared memory segment /dev/shm/nccl-Bz2Gkd (size 9637888)"));
  const Json job = ended_as("shm", {"HostOutOfMemory", "Succeeded"});
  const Json pod_spec = get("job", "shm-1")["spec"]["template"]["spec"];
  ASSERT_EQ(pod_spec["volumes"].size(), 2U) << write_json_pretty(pod_spec);
  std::string volumes = write_json(pod_spec["volumes"]);
  EXPECT_THAT(volumes, HasSubstr(R"("medium":"Memory")"));
  EXPECT_THAT(write_json(pod_spec["containers"][0]["volumeMounts"]), HasSubstr("/dev/shm"));
  EXPECT_GT(attempts_of(job)[1]["sharedMemoryBytes"].asInt64(), 0);
  EXPECT_THAT(attempts_of(job)[0]["message"].asString(), HasSubstr("/dev/shm was full"));
}

// It grew by a ratio, again and again, though what its trainers load was known.
TEST_F(EndingsTest, AHostThatRunsOutOfMemoryGivesWhatWasPredicted) {
  std::string text = manifest("host", {{"exit-code", "137"}, {"reason", "OOMKilled"}}).text();
  const std::string gpus = "limits: {nvidia.com/gpu: 1";
  text.insert(text.find(gpus) + gpus.size(), ", memory: 1Gi");
  must({"create", "-f", "-"}, text);
  const Json job = ended_as("host", {"HostOutOfMemory", "Succeeded"});
  const std::int64_t predicted = attempts_of(job)[0]["predictedHostMemoryBytes"].asInt64();
  EXPECT_EQ(predicted % (1 << 30), 0);
  const Json container = get("job", "host-1")["spec"]["template"]["spec"]["containers"][0];
  EXPECT_EQ(container["resources"]["limits"]["memory"].asString(), std::to_string(predicted >> 30) + "Gi");
  EXPECT_GT(predicted >> 30, 1);
}

// The job grew, though an empty card would have held it.
TEST_F(EndingsTest, ACardThatOthersFillIsAvoidedAndTheSizeStays) {
  create(
      "crowded",
      traceback(
          "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of "
          "79.15 GiB of which 41.75 MiB is free. Process 12345 has 77.90 GiB memory in use. Including non-PyTorch "
          "memory, this process has 1.20 GiB memory in use."));
  const Json job = ended_as("crowded", {"CUDAOutOfMemory", "Succeeded"});
  EXPECT_EQ(attempts_of(job)[1]["trainers"], attempts_of(job)[0]["trainers"]) << "no growth";
  const std::string node = attempts_of(job)[1]["avoidNodes"][0].asString();
  ASSERT_THAT(node, StartsWith("a100-"));
  for (const Json& pod : pods_of("crowded-1")) {
    EXPECT_NE(pod["spec"]["nodeName"].asString(), node);
  }
  EXPECT_TRUE(eventually(
      "an event names the node and the bytes",
      [&] {
        return must({"get", "events", "--field-selector", "involvedObject.name=crowded", "-o",
                     "jsonpath={.items[*].message}"})
            .output;
      },
      HasSubstr("others held 77.9 GiB of a card of 79.2 GiB on node " + node)));
}

}  // namespace
}  // namespace plimsoll::testing
