#include <gmock/gmock.h>

#include "base/yaml.h"
#include "tests/cli/run_command.h"
#include "tests/cli/temporary_file.h"

namespace plimsoll::cli {
namespace {

using plimsoll::testing::kJob;
using plimsoll::testing::Outcome;
using plimsoll::testing::run;
using plimsoll::testing::source_file;
using ::testing::HasSubstr;

Outcome estimate(std::vector<std::string> arguments, const std::string& input = kJob) {
  arguments.insert(arguments.begin(), {"-f", "-"});
  return run(run_estimate, arguments, input);
}

TEST(EstimateCommand, KeepsTheJsonContract) {
  const Outcome outcome = estimate({"-o", "json"});
  EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
  const Json json = outcome.json();
  EXPECT_EQ(json["job"].asString(), "team/ads");
  EXPECT_EQ(json["gpuModel"].asString(), "A100-80GB");
  EXPECT_EQ(json["trainers"].asInt64(), 64);
  EXPECT_GT(json["elapsedSeconds"].asDouble(), 0);
  EXPECT_TRUE(json["fits"].asBool());
  EXPECT_TRUE(json["peakPhase"].isString());
  EXPECT_EQ(json["breakdown"].size(), 12U);
  std::int64_t sum = 0;
  for (const char* part :
       {"parametersBytes", "gradientsBytes", "optimizerStateBytes", "inputsBytes", "activationsBytes",
        "temporariesBytes", "ddpBucketsBytes", "embeddingsBytes", "allocatorSlackBytes", "workspaceBytes",
        "communicationBytes", "cudaContextBytes"}) {
    ASSERT_TRUE(json["breakdown"][part].isInt64()) << part;
    sum += json["breakdown"][part].asInt64();
  }
  EXPECT_EQ(sum, json["peak"]["upperBoundBytes"].asInt64());
  EXPECT_LE(json["peak"]["allocatedBytes"].asInt64(), json["peak"]["reservedBytes"].asInt64());
  EXPECT_LE(json["peak"]["reservedBytes"].asInt64(), json["peak"]["upperBoundBytes"].asInt64());
}

TEST(EstimateCommand, ExplainsEachPart) {
  const Json json = estimate({"--explain", "-o", "json"}).json();
  ASSERT_EQ(json["explanation"].size(), 12U);
  for (const Json& part : json["explanation"]) {
    EXPECT_EQ(part["bytes"].asInt64(), json["breakdown"][part["part"].asString() + "Bytes"].asInt64());
    EXPECT_FALSE(part["rule"].asString().empty());
    EXPECT_GE(part["sources"].size(), 1U);
    EXPECT_GE(part["figures"].size(), 1U);
  }
  EXPECT_FALSE(estimate({"-o", "json"}).json().isMember("explanation"));
  EXPECT_GE(json["margins"].size(), 1U);
  EXPECT_THAT(estimate({"--explain"}).out, HasSubstr("AMP, Finding 12"));
}

TEST(EstimateCommand, YamlSaysTheSameAsJson) {
  const Json yaml = parse_yaml_documents(estimate({"-o", "yaml"}).out)->front();
  Json json = estimate({"-o", "json"}).json();
  for (const char* key : {"peak", "breakdown", "gpuModel", "trainers", "fits"}) {
    EXPECT_EQ(write_json(yaml[key]), write_json(json[key])) << key;
  }
}

TEST(EstimateCommand, TheAllocatorsOptionsMayBeGiven) {
  const Json plain = estimate({"-o", "json"}).json();
  const Json expandable = estimate({"--alloc-conf", "expandable_segments:True", "-o", "json"}).json();
  EXPECT_EQ(plain["peak"]["allocatedBytes"], expandable["peak"]["allocatedBytes"]);
  EXPECT_NE(plain["peak"]["reservedBytes"], expandable["peak"]["reservedBytes"]);
  const Outcome wrong = estimate({"--alloc-conf", "max_split_size_mb:1"});
  EXPECT_EQ(wrong.code, kExitUsage);
  EXPECT_THAT(wrong.err, HasSubstr("--alloc-conf"));
}

// 16 layers of 4 x 256 x 256 + 3 x 256 x 1,024 weights and two norms, in fp32, on 8 trainers.
TEST(EstimateCommand, WithoutReshardingAllLayersAreGatheredAtTheEndOfForward) {
  const plimsoll::testing::TemporaryFile config(
      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 1000, "hidden_size": 256,
          "intermediate_size": 1024, "num_hidden_layers": 16, "num_attention_heads": 4,
          "num_key_value_heads": 4, "max_position_embeddings": 512})");
  const auto temporaries = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "--config",    config.path(), "--sequence-length", "16",    "--batch-size", "1",
        "--optimizer", "AdamW",       "--parallelism",     "FSDP2", "--trainers",   "8",
        "-o",          "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(run_estimate, arguments, "");
    EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
    return outcome.json()["breakdown"]["temporariesBytes"].asInt64();
  };
  constexpr std::int64_t kLayer = 4 * (4 * 256 * 256 + 3 * 256 * 1024 + 2 * 256);
  EXPECT_GE(temporaries({"--no-reshard-after-forward"}), 16 * kLayer);
  EXPECT_LT(temporaries({"--replicate", "2"}), 4 * kLayer);
  EXPECT_LT(temporaries({}), 4 * kLayer);
}

TEST(EstimateCommand, TheLargestBatchFitsAndTheNextDoesNot) {
  const plimsoll::testing::TemporaryFile config(
      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 32000, "hidden_size": 1024,
          "intermediate_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 8, "max_position_embeddings": 2048})");
  const auto with = [&](const std::string& batch, const std::string& gpu = "A100-40GB",
                        const std::string& device = "cuda") {
    return run(run_estimate, {"--config", config.path(), "--sequence-length", "2048", "--batch-size", batch,
                              "--accumulate", "2", "--optimizer", "AdamW", "--precision", "BF16Mixed",
                              "--gpu", gpu, "--device", device, "-o", "json"})
        .json();
  };
  const std::int64_t largest = with("2")["largestBatch"].asInt64();
  ASSERT_GT(largest, 2);
  EXPECT_EQ(largest % 2, 0) << "a multiple of the parts";
  EXPECT_TRUE(with(std::to_string(largest))["fits"].asBool());
  EXPECT_EQ(with(std::to_string(largest))["largestBatch"].asInt64(), largest);
  const Json next = with(std::to_string(largest + 2));
  EXPECT_FALSE(next["fits"].asBool());
  EXPECT_EQ(next["largestBatch"].asInt64(), largest);
  EXPECT_FALSE(with("2", "A100-40GB", "cpu").isMember("largestBatch"));
  EXPECT_FALSE(estimate({"-o", "json"}).json().isMember("largestBatch")) << "tables are placed for one batch";
}

TEST(EstimateCommand, ALoopOfPyTorch1KeepsItsGradientsUnlessItIsSaid) {
  const plimsoll::testing::TemporaryFile config(
      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 32000, "hidden_size": 1024,
          "intermediate_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 8, "max_position_embeddings": 2048})");
  const auto outcome_of = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"--config",     config.path(), "--sequence-length", "2048",
                                          "--batch-size", "4",           "--optimizer",       "SGD",
                                          "-o",           "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(run_estimate, arguments);
  };
  const auto allocated = [&](const std::vector<std::string>& more) {
    return outcome_of(more).json()["peak"]["allocatedBytes"].asInt64();
  };
  const std::int64_t freed = allocated({"--torch-version", "2.0"});
  const std::int64_t kept = allocated({"--torch-version", "1.13"});
  EXPECT_GT(kept, freed);
  EXPECT_EQ(allocated({"--torch-version", "2.0", "--no-set-to-none"}), kept);
  EXPECT_EQ(allocated({"--torch-version", "1.13", "--set-to-none"}), freed);
  const Outcome both = outcome_of({"--set-to-none", "--no-set-to-none"});
  EXPECT_EQ(both.code, kExitUsage);
  EXPECT_THAT(both.err, HasSubstr("--set-to-none and --no-set-to-none exclude each other"));
}

TEST(EstimateCommand, GroupsOfHsdpNeedFsdp) {
  const plimsoll::testing::TemporaryFile config(R"({"model_type": "llama"})");
  const Outcome outcome = run(run_estimate,
                              {"--config", config.path(), "--sequence-length", "16", "--batch-size", "1",
                               "--optimizer", "AdamW", "--trainers", "8", "--replicate", "2"},
                              "");
  EXPECT_EQ(outcome.code, kExitUsage);
  EXPECT_THAT(outcome.err, HasSubstr("--replicate goes with --parallelism FSDP or FSDP2"));
}

TEST(EstimateCommand, ASmallerReduceBucketTakesLess) {
  const plimsoll::testing::TemporaryFile config(
      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 1000, "hidden_size": 256,
          "intermediate_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 4, "max_position_embeddings": 512})");
  const auto estimated = [&](const std::string& strategy, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {
        "--config",    config.path(), "--sequence-length", "16",     "--batch-size", "1",
        "--optimizer", "AdamW",       "--parallelism",     strategy, "--trainers",   "8",
        "-o",          "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(run_estimate, arguments, "");
  };
  const auto buckets = [](const Outcome& outcome) {
    EXPECT_EQ(outcome.code, kExitDone) << outcome.err;
    return outcome.json()["breakdown"]["ddpBucketsBytes"].asInt64();
  };
  for (const char* strategy : {"ZeRO2", "ZeRO3"}) {
    EXPECT_EQ(buckets(estimated(strategy, {})), 4 * 500'000'000L) << strategy;
    EXPECT_EQ(buckets(estimated(strategy, {"--reduce-bucket-size", "65536"})), 4 * 65'536) << strategy;
  }
  const Outcome outcome = estimated("FSDP2", {"--reduce-bucket-size", "65536"});
  EXPECT_EQ(outcome.code, kExitUsage);
  EXPECT_THAT(outcome.err, HasSubstr("--reduce-bucket-size goes with --parallelism ZeRO1 to ZeRO3"));
}

TEST(EstimateCommand, PeopleGetBars) {
  const Outcome outcome = estimate({});
  EXPECT_EQ(outcome.code, kExitDone);
  EXPECT_THAT(outcome.out, HasSubstr("team/ads on 64 x A100-80GB"));
  EXPECT_THAT(outcome.out, HasSubstr("embeddings"));
  EXPECT_THAT(outcome.out, HasSubstr("####"));
}

TEST(EstimateCommand, WhatDoesNotFitIsExitOneWithTheReason) {
  const Outcome outcome = estimate({"--trainers", "4", "-o", "json"});
  EXPECT_EQ(outcome.code, kExitRefused);
  const Json json = outcome.json();
  EXPECT_FALSE(json["fits"].asBool());
  EXPECT_GT(json["missingBytes"].asInt64(), 0);
  EXPECT_THAT(json["reason"].asString(), HasSubstr("4 x A100-80GB"));
  EXPECT_THAT(outcome.err, HasSubstr("does not fit"));
  EXPECT_GT(json["peak"]["upperBoundBytes"].asInt64(), json["capacityBytes"].asInt64());
}

TEST(EstimateCommand, TheGpuMayBeNamedInSeveralWays) {
  EXPECT_EQ(estimate({"--gpu", "h100-80gb", "-o", "json"}).json()["gpuModel"].asString(), "H100-80GB");
  EXPECT_EQ(estimate({"--gpu", "NVIDIA-H100-80GB-HBM3", "-o", "json"}).json()["gpuModel"].asString(),
            "H100-80GB");
  const Outcome unknown = estimate({"--gpu", "Voodoo2"});
  EXPECT_EQ(unknown.code, kExitUsage);
  EXPECT_THAT(unknown.err, HasSubstr("Voodoo2"));
  EXPECT_THAT(unknown.err, HasSubstr("A100-80GB"));
}

TEST(EstimateCommand, ThePublishedFormulaIsAnotherMethod) {
  const Json amp = estimate({"--method", "amp", "-o", "json"}).json();
  EXPECT_EQ(amp["method"].asString(), "amp");
  EXPECT_NE(amp["peak"]["upperBoundBytes"], estimate({"-o", "json"}).json()["peak"]["upperBoundBytes"]);
  EXPECT_EQ(estimate({"--method", "guess"}).code, kExitUsage);
}

TEST(EstimateCommand, EachDocumentIsAnsweredAndTheWorstDecidesTheExitCode) {
  const std::string broken =
      "---\napiVersion: plimsoll.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: bad}\n";
  const Outcome outcome = estimate({"-o", "json"}, std::string(kJob) + broken + "---\n" + kJob);
  EXPECT_EQ(outcome.code, kExitRefused);
  const Json json = outcome.json();
  ASSERT_EQ(json.size(), 3U);
  EXPECT_TRUE(json[0]["fits"].asBool());
  EXPECT_EQ(json[1]["job"].asString(), "default/bad");
  EXPECT_EQ(json[1]["code"].asString(), "Invalid");
  EXPECT_THAT(json[1]["reason"].asString(), HasSubstr("spec"));
  EXPECT_TRUE(json[2]["fits"].asBool());
}

TEST(EstimateCommand, TablesMayComeFromAConfigMapBesideTheJob) {
  const Json json = run(run_estimate, {"-f", source_file("examples/model-c.yaml"), "-o", "json"}).json();
  EXPECT_GT(json["breakdown"]["embeddingsBytes"].asInt64(), 20LL << 30);
}

TEST(EstimateCommand, AGraphMayBringItsTables) {
  const Json json = run(run_estimate, {"-f", source_file("examples/two-towers.yaml"), "-o", "json"}).json();
  EXPECT_GT(json["breakdown"]["embeddingsBytes"].asInt64(), 3LL << 30) << "an eighth of 24 GiB";
  EXPECT_EQ(json["ranks"].size(), 8U);
  EXPECT_TRUE(json["fits"].asBool());
}

TEST(EstimateCommand, TransformersAreEstimatedBySizesAndByConfig) {
  std::string job = kJob;
  const std::size_t model = job.find("    dlrm:");
  const std::size_t length = job.find("  training:") - model;
  const std::string sizes =
      "    transformer: {layers: 2, hidden: 64, heads: 4, ffn: 256, vocab: 1000, seqLen: 128}\n";
  const Json by_sizes = estimate({"-o", "json"}, std::string(job).replace(model, length, sizes)).json();
  const std::string config =
      "    transformer:\n      seqLen: 128\n      config: |\n"
      "        {\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, \"num_attention_heads\": 4,\n"
      "         \"intermediate_size\": 256, \"vocab_size\": 1000}\n";
  const Json by_config = estimate({"-o", "json"}, std::string(job).replace(model, length, config)).json();
  EXPECT_GT(by_sizes["denseParameterBytes"].asInt64(), 0);
  EXPECT_EQ(by_sizes["breakdown"], by_config["breakdown"]);
}

TEST(EstimateCommand, AGraphThatIsNotThereIsRefusedWithAReason) {
  std::string graph = kJob;
  const std::size_t model = graph.find("    dlrm:");
  graph.replace(model, graph.find("  training:") - model,
                "    graph: {configMapKeyRef: {name: cm, key: k}}\n");
  const Outcome outcome = estimate({"-o", "json"}, graph);
  EXPECT_EQ(outcome.code, kExitRefused);
  EXPECT_EQ(outcome.json()["code"].asString(), "NotFound") << "the ConfigMap is not in the input";
}

TEST(EstimateCommand, AConfigNeedsNoJob) {
  const testing::TemporaryFile config(R"({"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64,
      "num_attention_heads": 4, "intermediate_size": 256, "vocab_size": 1000})");
  const std::vector<std::string> requested = {
      "--config", config.path(), "--batch-size", "8",  "--sequence-length",
      "128",      "--optimizer", "AdamW",        "-o", "json"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), requested.begin(), requested.end());
    return run(run_estimate, more);
  };
  EXPECT_GT(with({}).json()["peak"]["allocatedBytes"].asInt64(), 0);
  const Json pipeline = with({"--trainers", "4", "--pipeline", "4", "--accumulate", "4"}).json();
  EXPECT_EQ(pipeline["ranks"].size(), 4U);
  EXPECT_EQ(with({"--device", "cpu"}).json()["breakdown"]["cudaContextBytes"].asInt64(), 0);
  EXPECT_EQ(with({"--trainers", "3", "--tensor", "2"}).code, kExitRefused);
  EXPECT_EQ(with({"--attention", "Dense"}).code, kExitUsage);
  EXPECT_EQ(with({"-f", "job.yaml"}).code, kExitUsage);
  EXPECT_EQ(run(run_estimate, {"--config", config.path(), "--batch-size", "8", "--optimizer", "Adam"}).code,
            kExitUsage);
  EXPECT_EQ(run(run_estimate, {"-f", "job.yaml", "--tensor", "2"}).code, kExitUsage);
}

TEST(EstimateCommand, WrongUsageIsExitTwo) {
  EXPECT_EQ(run(run_estimate, {}).code, kExitUsage);
  EXPECT_EQ(estimate({"--batch-size", "8"}).code, kExitUsage);
  EXPECT_EQ(run(run_estimate, {"-f", "/no/such/file"}).code, kExitUsage);
  for (const char* count : {"0", "-8", "1.5", "x", "", "99999999999999999999", "13"}) {
    EXPECT_EQ(estimate({"--trainers", count}).code, kExitUsage) << count;
  }
}

}  // namespace
}  // namespace plimsoll::cli
