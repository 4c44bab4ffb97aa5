#include "cli/swap_source.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <fstream>
#include <iterator>

#include "cli/command.h"
#include "cli/subcommands.h"
#include "tests/cli/run_command.h"
#include "tests/cli/temporary_file.h"

namespace plimsoll::cli {
namespace {

using plimsoll::testing::Outcome;
using plimsoll::testing::run;
using plimsoll::testing::source_file;
using ::testing::HasSubstr;

std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<std::string> gpt2_xl(const std::vector<std::string>& more = {}) {
  return with({"--config", source_file("examples/gpt2-xl-config.json"), "--gpus", "4"}, more);
}

constexpr const char* kJob = R"(apiVersion: plimsoll.dev/v1alpha1
kind: TrainingJob
metadata: {name: xl}
spec:
  model: {transformer: {config: '{"model_type": "gpt2", "n_layer": 4, "n_embd": 128, "n_head": 4, "vocab_size": 500}', seqLen: 64}}
  training: {batchSizePerTrainer: 8, optimizer: AdamW, precision: BF16Mixed}
  trainers: {replicas: 2, gpuModel: RTX-3090}
  template: {spec: {containers: [{name: trainer, image: trainer}]}}
)";

// The acceptance of the four approaches: GPT-2 XL on 4 GPUs of 10 GiB.
TEST(SwapSource, TheFourWaysAreComparedForAConfig) {
  const Outcome table = run(run_swap, with({"--compare"}, gpt2_xl({"--capacity", "10Gi"})));
  EXPECT_EQ(table.code, kExitDone) << table.err;
  EXPECT_THAT(table.out, HasSubstr("50 layers on 4 GPUs of 10.0 GiB, 16 microbatches of 4"));
  for (const char* const mode : {"  DP ", "  PP ", "  vDP ", "  vPP "}) {
    EXPECT_THAT(table.out, HasSubstr(mode));
  }
  EXPECT_THAT(table.out, HasSubstr("all four fit"));
  std::ifstream file(source_file("docs/harmony.md"));
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(page, HasSubstr(table.out.substr(table.out.find('\n')))) << "the table there";
  const Json json = run(run_swap, with({"--compare"}, gpt2_xl({"--capacity", "2Gi", "-o", "json"}))).json();
  ASSERT_EQ(json.size(), 4U);
  // Its weights are those of the published profile, whose head is not tied either; 16 microbatches.
  EXPECT_EQ(json[0]["volumes"]["weights"].asInt64(), 471'750'451'200);
  EXPECT_FALSE(json[0]["fits"].asBool());
  EXPECT_GT(json[0]["neededBytes"].asInt64(), json[0]["deviceBytes"].asInt64());
}

// docs/harmony.md, What moves: with each layer a pack.
TEST(SwapSource, TheRuntimesSemanticsMoveLess) {
  const auto volumes = [](const char* semantics) {
    return run(run_swap, with({"--compare", "--semantics", semantics, "-o", "json"}, gpt2_xl())).json();
  };
  const Json table = volumes("table");
  const Json runtime = volumes("runtime");
  EXPECT_EQ(table[0], runtime[0]) << "DP has no such runtime";
  EXPECT_EQ(runtime[3]["volumes"]["optimizerState"].asInt64(), 0);
  EXPECT_EQ(runtime[3]["volumes"]["gradients"].asInt64(), 6'552'089'600);
  EXPECT_LT(runtime[3]["volumes"]["weights"].asInt64(), table[3]["volumes"]["weights"].asInt64());
  EXPECT_EQ(runtime[2]["volumes"]["allReducePayload"].asInt64(),
            4 * runtime[2]["volumes"]["gradients"].asInt64());
}

TEST(SwapSource, AConfigIsPlannedForTheCard) {
  const Json json =
      run(run_swap, gpt2_xl({"--gpu", "RTX-3090", "--precision", "BF16Mixed", "-o", "json"})).json();
  EXPECT_EQ(json["layers"].asInt(), 50);
  EXPECT_EQ(json["batchSize"].asInt(), 64) << "16 a GPU";
  EXPECT_LT(json["deviceBytes"].asInt64(), std::int64_t{24} << 30);
  EXPECT_GT(json["deviceBytes"].asInt64(), std::int64_t{20} << 30);
  EXPECT_EQ(json["volumes"]["weights"], json["volumes"]["weightsIn"]);
  EXPECT_EQ(json["volumes"]["gradients"], json["volumes"]["gradientsOut"]);
  EXPECT_EQ(json["volumes"]["optimizerState"].asInt64(), 0);
  EXPECT_TRUE(json["volumes"].isMember("allReduceWire"));
}

// A profile that was written is read as the one that was derived. The file had one name for all processes: two that ran at once took it
// from each other.
TEST(SwapSource, AWrittenProfileGivesTheSamePlan) {
  const testing::TemporaryFile file("");
  const std::string& path = file.path();
  const Json derived =
      run(run_swap, gpt2_xl({"--capacity", "10Gi", "--microbatches", "1,2,4", "--write-profile", path, "-o",
                             "json", "--links", "memory=1555G"}))
          .json();
  const Json again = run(run_swap, {"--profile", path, "--gpus", "4", "--batch-size", "64", "--capacity",
                                    "10Gi", "-o", "json", "--links", "memory=1555G"})
                         .json();
  EXPECT_EQ(derived["packs"], again["packs"]);
  EXPECT_EQ(derived["resident"], again["resident"]);
  EXPECT_GT(derived["resident"].size(), 0U);
  EXPECT_EQ(derived["hostBytes"], again["hostBytes"]);
  EXPECT_DOUBLE_EQ(derived["iterationSeconds"].asDouble(), again["iterationSeconds"].asDouble());
}

TEST(SwapSource, APlanIsSimulatedOnADerivedProfile) {
  const Outcome plan = run(run_swap, gpt2_xl({"--capacity", "10Gi", "-o", "json"}));
  const Json again =
      run(run_swap, {"--config", source_file("examples/gpt2-xl-config.json"), "--plan", "-", "-o", "json"},
          plan.out)
          .json();
  EXPECT_DOUBLE_EQ(again["iterationSeconds"].asDouble(), plan.json()["iterationSeconds"].asDouble());
}

TEST(SwapSource, AJobSaysWhatTheOptionsWould) {
  const Json json = run(run_swap, {"-f", "-", "-o", "json"}, kJob).json();
  EXPECT_EQ(json["gpus"].asInt(), 2);
  EXPECT_EQ(json["batchSize"].asInt(), 16);
  EXPECT_EQ(json["layers"].asInt(), 6);
  const Json other =
      run(run_swap, {"-f", "-", "--gpus", "1", "--batch-size", "4", "-o", "json"}, kJob).json();
  EXPECT_EQ(other["batchSize"].asInt(), 4);
}

TEST(SwapSource, AGraphIsPlanned) {
  const std::string graph = source_file("tests/estimator/layer_costs/gpt2.json.gz");
  // That graph is the CPU's.
  const Outcome outcome = run(run_swap, {"--graph", graph, "--gpus", "2"});
  EXPECT_EQ(outcome.code, kExitRefused);
  EXPECT_THAT(outcome.err, HasSubstr("cuda"));
  const Json json = run(run_swap, {"--graph", graph, "--gpus", "2", "--device", "cpu", "-o", "json"}).json();
  EXPECT_EQ(json["layers"].asInt(), 4);
}

TEST(SwapSource, WrongUsageIsExitTwo) {
  const auto error = [](const std::vector<std::string>& arguments, const std::string& input = {}) {
    const Outcome outcome = run(run_swap, arguments, input);
    EXPECT_EQ(outcome.code, kExitUsage) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(error({"--profile", "-", "--config", "-", "--gpus", "1"}), HasSubstr("exclude each other"));
  EXPECT_THAT(error({"--profile", "-", "--gpu", "H100"}),
              HasSubstr("--gpu is for a profile that is derived"));
  EXPECT_THAT(error(gpt2_xl({"--gpu", "H1000"})), HasSubstr("unknown GPU model \"H1000\""));
  EXPECT_THAT(error(gpt2_xl({"--microbatches", "2,1"})), HasSubstr("--microbatches must be rising numbers"));
  EXPECT_THAT(error(gpt2_xl({"--microbatches", "x"})), HasSubstr("--microbatches must be rising numbers"));
  EXPECT_THAT(error(gpt2_xl({"--optimizer", "Magic"})), HasSubstr("--optimizer"));
  EXPECT_THAT(error({"--config", "-", "--gpus", "2"}, R"({"model_type": "bloom", "hidden_size": 64})"),
              HasSubstr("needs --sequence-length"));
  EXPECT_THAT(error({"--config", "nothing.json", "--gpus", "2"}), HasSubstr("nothing.json"));
  EXPECT_THAT(error({"--graph", "-", "--gpus", "2"}, "{}"), HasSubstr("-: "));
  EXPECT_THAT(error({"--graph", "-", "--gpus", "2", "--sequence-length", "8"}, "{}"),
              HasSubstr("--sequence-length is for --config"));
  EXPECT_THAT(error({"-f", "-", "--precision", "BF16"}, kJob), HasSubstr("a job has it in its spec"));
  EXPECT_THAT(error({"-f", "-"}, std::string(kJob) + "---\n" + kJob),
              HasSubstr("for one job, and the input has 2"));
  EXPECT_THAT(error({"--config", source_file("examples/gpt2-xl-config.json")}),
              HasSubstr("plimsoll swap needs --gpus"));
  EXPECT_THAT(error(with({"--compare", "--semantics", "runtime", "--fused-turn"}, gpt2_xl())),
              HasSubstr("--fused-turn is for --semantics table"));
}

TEST(SwapSource, WhatCannotBeProfiledIsExitOne) {
  const auto refusal = [](const std::vector<std::string>& arguments, const std::string& input = {}) {
    const Outcome outcome = run(run_swap, arguments, input);
    EXPECT_EQ(outcome.code, kExitRefused) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(refusal(gpt2_xl({"--gpu", "K80"})), HasSubstr("the speed of K80 is not known"));
  EXPECT_THAT(refusal(gpt2_xl({"--device", "cpu"})), HasSubstr("choose attention Eager"));
  EXPECT_THAT(refusal(gpt2_xl({"--precision", "FP16Mixed"})), HasSubstr("use BF16Mixed"));
  EXPECT_THAT(refusal(gpt2_xl({"--optimizer", "PagedAdamW"})), HasSubstr("updates layers on the host"));
  EXPECT_THAT(refusal({"-f", source_file("examples/dlrm-dcnv2-mlperf.yaml"), "--gpus", "2"}),
              HasSubstr("a model with embedding tables has no list of layers"));
}

}  // namespace
}  // namespace plimsoll::cli
