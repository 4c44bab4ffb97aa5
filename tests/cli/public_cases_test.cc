// What other people published (public_cases/README.md), on the command line as they would use it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/run_command.h"
#include "tests/cli/temporary_file.h"

namespace plimsoll::cli {
namespace {

using plimsoll::testing::Outcome;
using plimsoll::testing::run;
using plimsoll::testing::source_file;
using plimsoll::testing::Subcommand;
using plimsoll::testing::TemporaryFile;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kGiB = 0x1p30;

std::string file(const std::string& name) {
  return source_file("tests/cli/public_cases/" + name);
}

Json estimate(const std::string& config, std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--config", file(config), "--optimizer", "AdamW", "-o", "json"});
  const Outcome outcome = run(run_estimate, arguments);
  EXPECT_NE(outcome.code, kExitUsage) << outcome.err;
  return outcome.json();
}

double states(const Json& estimate) {
  const Json& breakdown = estimate["breakdown"];
  return breakdown["parametersBytes"].asDouble() + breakdown["gradientsBytes"].asDouble() +
         breakdown["optimizerStateBytes"].asDouble();
}

TEST(PublicCases, T0FitsAnA100Of80GBAndMt0Xxl) {
  const std::vector<std::string> training = {
      "--batch-size", "8",    "--sequence-length", "128",  "--single-tensor",
      "--precision",  "FP32", "--attention",       "Eager"};
  const auto on = [&](const char* config, const char* gpu) {
    std::vector<std::string> arguments = training;
    arguments.insert(arguments.end(), {"--gpu", gpu});
    return estimate(config, arguments);
  };
  const Json t0 = on("t0-3b.json", "A100-80GB");
  const double allocated = t0["peak"]["allocatedBytes"].asDouble() / kGiB;
  EXPECT_GT(allocated, 42.5);
  EXPECT_LT(allocated, 47.2);
  EXPECT_TRUE(t0["fits"].asBool());
  EXPECT_FALSE(on("t0-3b.json", "A100-40GB")["fits"].asBool());
  const Json xxl = on("mt0-xxl.json", "A100-80GB");
  EXPECT_FALSE(xxl["fits"].asBool());
  EXPECT_NEAR(states(xxl) / kGiB, 192.5, 0.1);
}

TEST(PublicCases, Llama7BFitsTwoCardsOf80GBButNotOne) {
  const std::vector<std::string> training = {"--batch-size", "4",         "--sequence-length", "512",
                                             "--precision",  "BF16Mixed", "--attention",       "Eager",
                                             "--gpu",        "A100-80GB"};
  const Json one = estimate("llama-7b.json", training);
  EXPECT_FALSE(one["fits"].asBool());
  EXPECT_NEAR(states(one) / kGiB, 100.4, 0.1);
  std::vector<std::string> sharded = training;
  sharded.insert(sharded.end(), {"--parallelism", "FSDP", "--trainers", "2"});
  const Json two = estimate("llama-7b.json", sharded);
  EXPECT_TRUE(two["fits"].asBool()) << two["reason"].asString();
  EXPECT_NEAR(states(two) / kGiB, 50.2, 0.1);
}

// "Fits" on 8 RTX 3090 said nothing of the 25.1 GiB that came to each card while the model was made.
TEST(PublicCases, AShardedModelThatIsLargerThanACardComesWithANote) {
  const std::vector<std::string> training = {"--config",          file("llama-7b.json"),
                                             "--optimizer",       "AdamW",
                                             "--batch-size",      "4",
                                             "--sequence-length", "2048",
                                             "--precision",       "BF16Mixed",
                                             "--checkpoint",      "Full",
                                             "--parallelism",     "FSDP"};
  std::vector<std::string> eight = training;
  eight.insert(eight.end(), {"--trainers", "8", "--gpu", "RTX-3090"});
  EXPECT_THAT(run(run_estimate, eight).err,
              AllOf(HasSubstr("a model that is made on the GPU does not fit"),
                    HasSubstr("up to 28.8 GiB of 22.4 GiB"), HasSubstr("meta device")));
  std::vector<std::string> four = training;
  four.insert(four.end(), {"--trainers", "4", "--gpu", "A100-40GB", "-o", "json"});
  const Outcome outcome = run(run_estimate, four);
  EXPECT_EQ(outcome.err, "");
  EXPECT_NEAR(outcome.json()["peak"]["allocatedBytes"].asDouble() / 1e9, 31, 5) << "29 GB were reserved";
}

TEST(PublicCases, ZeRO2TakesTwoAndFourteenBytesByTheTrainers) {
  const Json json = estimate("llama-7b.json", {"--batch-size", "1", "--sequence-length", "128", "--precision",
                                               "BF16Mixed", "--checkpoint", "Full", "--parallelism", "ZeRO2",
                                               "--trainers", "64", "--gpu", "A100-40GB"});
  const double parameters = 6.738e9;
  EXPECT_NEAR(states(json) / (parameters * (2 + 14.0 / 64)), 1, 0.01);
}

TEST(PublicCases, AModelByItsConfigAndByItsSizesTakesTheSame) {
  const Json by_config = estimate("llama-7b.json", {"--batch-size", "1", "--sequence-length", "2048",
                                                    "--precision", "BF16Mixed", "--gpu", "H200"});
  const std::string job = R"(
apiVersion: plimsoll.dev/v1alpha1
kind: TrainingJob
metadata: {name: sizes}
spec:
  model: {transformer: {layers: 32, hidden: 4096, heads: 32, ffn: 11008, vocab: 32000, seqLen: 2048}}
  training: {batchSizePerTrainer: 1, optimizer: AdamW, precision: BF16Mixed}
  trainers: {replicas: 1, gpuModel: H200}
  template: {spec: {containers: [{name: trainer}]}}
)";
  const Json by_sizes = run(run_estimate, {"-f", "-", "-o", "json"}, job).json();
  EXPECT_EQ(by_sizes["peak"], by_config["peak"]);
}

// A cluster of nodes of 8 GPUs.
std::string cluster(const std::string& product, int memory_mib, int nodes) {
  std::string text;
  for (int i = 0; i < nodes; ++i) {
    text +=
        R"({apiVersion: v1, kind: Node, metadata: {name: n)" + std::to_string(i) +
        R"(, labels: {nvidia.com/gpu.product: )" + product + R"(, nvidia.com/gpu.memory: ")" +
        std::to_string(memory_mib) +
        R"("}}, status: {allocatable: {nvidia.com/gpu: "8"}, conditions: [{type: Ready, status: "True"}]}})"
        "\n---\n";
  }
  return text;
}

TEST(PublicCases, TwoCardsOf48GBHoldNotHalfOfLlama8BsStates) {
  const TemporaryFile nodes(cluster("NVIDIA-RTX-A6000", 49140, 2));
  const Outcome outcome =
      run(run_provision, {"-f", file("llama-3-8b-torchtitan.yaml"), "--cluster", nodes.path()});
  EXPECT_EQ(outcome.code, kExitRefused);
  EXPECT_THAT(outcome.err, HasSubstr("fits 4 x RTX-A6000 with training.activationCheckpointing: Full"))
      << "not 2";
  const Outcome as_it_is = run(run_estimate, {"-f", file("llama-3-8b-torchtitan.yaml"), "-o", "json"});
  EXPECT_EQ(as_it_is.code, kExitRefused);
  EXPECT_GT(as_it_is.json()["peak"]["allocatedBytes"].asDouble() / kGiB, 59.8) << "the states alone";
}

TEST(PublicCases, Llama70BOnH100IsNot300GB) {
  const TemporaryFile nodes(cluster("NVIDIA-H100-80GB-HBM3", 81559, 8));
  const Outcome outcome = run(run_provision, {"-f", file("llama-3.1-70b.yaml"), "--cluster", nodes.path()});
  EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("24 would hold the job")) << "8 do not, and 64 are wasteful";
}

TEST(PublicCases, CriteosTablesByFrequencyThreshold) {
  const auto trainers = [](const char* tables, const char* memory) {
    const Outcome outcome =
        run(run_shard, {"--tables", file(tables), "--trainers", "auto", "--hbm", memory, "--batch-size",
                        "8192", "--optimizer", "SGD", "--verify", "-o", "json"});
    EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
    const Json json = outcome.json();
    EXPECT_TRUE(json["verified"].asBool());
    return json["trainers"].asInt64();
  };
  EXPECT_EQ(trainers("criteo-t15.csv", "32Gi"), 1);
  EXPECT_EQ(trainers("criteo-t3.csv", "80Gi"), 2);
  EXPECT_EQ(trainers("criteo-t3.csv", "32Gi"), 3);
  const Outcome one = run(run_shard, {"--tables", file("criteo-t3.csv"), "--trainers", "1", "--hbm", "80Gi",
                                      "--batch-size", "8192", "--optimizer", "SGD"});
  EXPECT_EQ(one.code, kExitRefused);
  EXPECT_THAT(one.err, HasSubstr("TotalMemory"));
}

// They were "no TrainingJob".
TEST(PublicCases, ManifestsOfOtherKindsAreAnsweredWithTheirSizeAndWhatIsMissing) {
  const TemporaryFile nodes(cluster("NVIDIA-A100-SXM4-80GB", 81920, 4));
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"pytorchjob-node-shutdown.yaml", "PyTorchJob team-a/restart-failure: "},
      {"jobset-torchrun-counts.yaml", "2 pods of 2 GPUs: its model is not described"},
      {"pytorchjob-master-worker.yaml", "4 pods of 8 GPUs: its model is not described"},
      {"trainjob-runtime-without-gpus.yaml", "2 pods of 2 GPUs: its model is not described"}};
  for (const auto& [name, text] : cases) {
    for (const Subcommand command : {run_estimate, run_provision}) {
      std::vector<std::string> arguments = {"-f", file(name)};
      if (command == run_provision) {
        arguments.insert(arguments.end(), {"--cluster", nodes.path()});
      }
      const Outcome outcome = run(command, arguments);
      EXPECT_EQ(outcome.code, kExitRefused) << name;
      EXPECT_THAT(outcome.err, AllOf(HasSubstr(text), HasSubstr(name), HasSubstr("plimsoll.dev/model")))
          << name;
    }
  }
  EXPECT_THAT(run(run_estimate, {"-f", file("trainjob-runtime-without-gpus.yaml")}).err,
              HasSubstr("TrainJob team-a/bare is passed over: there is nothing to size"));
}

}  // namespace
}  // namespace plimsoll::cli
