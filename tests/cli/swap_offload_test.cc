#include "cli/swap_offload.h"

#include <gmock/gmock.h>

#include <fstream>
#include <iterator>

#include "tests/cli/run_command.h"

namespace plimsoll::cli {
namespace {

using plimsoll::testing::Outcome;
using plimsoll::testing::run;
using plimsoll::testing::source_file;
using ::testing::EndsWith;
using ::testing::HasSubstr;

std::vector<std::string> of_job(const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"-f",         source_file("examples/qwen3-30b-a3b-megatron.yaml"),
                                        "--executor", "Megatron",
                                        "--capacity", "58Gi"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<std::string> of_config(const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"--config", source_file("examples/gpt2-xl-config.json"), "--gpus",
                                        "4"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::string refusal(const std::vector<std::string>& arguments) {
  const Outcome outcome = run(run_swap, arguments);
  EXPECT_EQ(outcome.code, kExitUsage) << outcome.out;
  return outcome.err;
}

TEST(SwapOffload, PrintsTheExampleOfTheDocs) {
  const Outcome table = run(run_swap, of_job());
  EXPECT_EQ(table.code, kExitDone) << table.err;
  std::ifstream file(source_file("docs/harmony.md"));
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(page, HasSubstr(table.out));
}

TEST(SwapOffload, TheLeastIsTheFirstPointThatFits) {
  const Json json = run(run_swap, of_job({"-o", "json"})).json();
  const Json& least = json["points"][json["least"].asInt()];
  EXPECT_TRUE(least["fits"].asBool());
  EXPECT_EQ(least["offload"].asString(), "Optimizer");
  EXPECT_LE(least["deviceBytes"].asInt64(), json["capacityBytes"].asInt64());
  EXPECT_FALSE(json["points"][json["least"].asInt() - 1]["fits"].asBool());
}

TEST(SwapOffload, MeasuredIterationsReplaceOurs) {
  const Json json =
      run(run_swap, of_job({"--measured", "0=0.996", "--measured", "100=4.189", "-o", "json"})).json();
  EXPECT_DOUBLE_EQ(json["points"][0]["iterationSeconds"].asDouble(), 0.996);
  EXPECT_DOUBLE_EQ(json["points"][json["points"].size() - 1]["iterationSeconds"].asDouble(), 4.189);
}

TEST(SwapOffload, AConfigNeedsNoJob) {
  const Outcome table = run(run_swap, of_config({"--executor", "zero3", "--gpu", "A100-40GB"}));
  EXPECT_EQ(table.code, kExitDone) << table.err;
  EXPECT_THAT(table.out, HasSubstr("ZeRO3 on 4 GPUs of "));
  EXPECT_THAT(table.out, HasSubstr("the optimizer and the parameters"));
}

TEST(SwapOffload, SaysWhatIsMissingWhereAllIsTooLittle) {
  const Outcome table = run(run_swap, of_job({"--capacity", "30Gi"}));
  EXPECT_EQ(table.code, kExitUsage) << "given twice";
  const Outcome refused = run(run_swap, of_config({"--executor", "FSDP2", "--capacity", "2Gi"}));
  EXPECT_EQ(refused.code, kExitRefused);
  EXPECT_THAT(refused.err, HasSubstr("a GPU still takes"));
  EXPECT_THAT(refused.err, HasSubstr("are missing"));
}

TEST(SwapOffload, SaysWhatTheHostLacks) {
  const Outcome refused = run(run_swap, of_job({"--host-memory", "64Gi"}));
  EXPECT_EQ(refused.code, kExitRefused);
  EXPECT_THAT(refused.out, HasSubstr("exceeds the host"));
  EXPECT_THAT(refused.err, HasSubstr("the least that fits a GPU, a node's host takes"));
  EXPECT_EQ(run(run_swap, of_job({"--host-memory", "128Gi"})).code, kExitDone);
}

// Were not read: the job's overlapOffload, and its global batch, of which a trainer's share was 0.
TEST(SwapOffload, AJobsOwnTrainingIsRead) {
  const auto changed = [](const std::string& file, const std::string& from, const std::string& to) {
    std::ifstream in(source_file("examples/" + file));
    std::string text((std::istreambuf_iterator<char>(in)), {});
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << file;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  };
  const auto last_seconds = [](const std::string& job) {
    const Json points =
        run(run_swap, {"-f", "-", "--executor", "Megatron", "-o", "json"}, job).json()["points"];
    return points[points.size() - 1]["iterationSeconds"].asDouble();
  };
  const char* const kQwen = "qwen3-30b-a3b-megatron.yaml";
  EXPECT_LT(last_seconds(changed(kQwen, "offloadPercent: 50", "overlapOffload: true")),
            last_seconds(changed(kQwen, "offloadPercent: 50", "offloadPercent: 75")));
  const Outcome bert = run(run_swap, {"-f", "-", "--executor", "FSDP2"},
                           changed("bert-global-batch.yaml", "strategy: DDP", "strategy: FSDP2"));
  EXPECT_EQ(bert.code, kExitDone) << bert.err;
  EXPECT_THAT(bert.out, HasSubstr(", 2048 samples in microbatches of "));
}

TEST(SwapOffload, WrongUseIsRefusedByName) {
  EXPECT_THAT(refusal(of_config({"--executor", "DDP"})), HasSubstr("--executor must be one of"));
  EXPECT_THAT(refusal(of_config({"--tensor", "2"})), HasSubstr("--tensor goes with --executor Megatron"));
  EXPECT_THAT(refusal(of_config({"--executor", "Megatron", "--mode", "vPP"})),
              HasSubstr("--mode is for plimsoll.harmony"));
  EXPECT_THAT(refusal(of_config({"--executor", "Megatron", "--tensor", "3"})),
              HasSubstr("--gpus must be a multiple of --tensor x --pipeline x --context, 3"));
  EXPECT_THAT(refusal(of_config({"--executor", "Megatron", "--batch-size", "6"})),
              HasSubstr("--batch-size must be a multiple"));
  EXPECT_THAT(refusal(of_config({"--executor", "ZeRO2", "--overlap-offload"})),
              HasSubstr("--overlap-offload goes with --executor Megatron"));
  EXPECT_THAT(refusal(of_config({"--executor", "Megatron", "--measured", "50=2"})),
              HasSubstr("--measured must be 0=SECONDS or 100=SECONDS"));
  EXPECT_THAT(refusal(of_config({"--executor", "Megatron", "--measured", "0=2", "--measured", "100=1"})),
              HasSubstr("takes longer than one with nothing there"));
  EXPECT_THAT(refusal(of_config({"--executor", "Megatron", "--measured", "0=2", "--measured", "0=1"})),
              HasSubstr("--measured has 0= twice"));
  EXPECT_THAT(refusal(of_job({"--overlap-offload"})), HasSubstr("a job has it in its spec"));
  EXPECT_THAT(refusal(of_config({"--compare", "--host-memory", "1Gi"})),
              HasSubstr("--host-memory is about a search"));
  EXPECT_THAT(refusal(of_job({"--gpus", "8"})), HasSubstr("the job has it in its spec"));
  EXPECT_THAT(refusal({"-f", source_file("examples/qwen3-30b-a3b-megatron.yaml"), "--executor", "ZeRO2"}),
              HasSubstr("the job's training.parallelism.strategy is Megatron, and --executor is ZeRO2"));
  EXPECT_THAT(refusal({"--profile", source_file("examples/gpt2-xl-profile.json"), "--executor", "Megatron"}),
              HasSubstr("--executor needs --config, --graph or -f"));
}

TEST(SwapOffload, PrintsTheRemediesOfTheDocs) {
  const Outcome table = run(run_swap, {"-f", source_file("examples/qwen3-30b-a3b-megatron.yaml"),
                                       "--executor", "Megatron", "--capacity", "48Gi", "--remedies"});
  EXPECT_EQ(table.code, kExitDone) << table.err;
  std::ifstream file(source_file("docs/harmony.md"));
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(page, HasSubstr(table.out));
}

TEST(SwapOffload, RemediesTogetherAreNoDearerThanEachAlone) {
  const Json json = run(run_swap, of_job({"--remedies", "-o", "json"})).json();
  ASSERT_FALSE(json["together"].isNull());
  for (const char* const each : {"recomputation", "offload", "moreGpus", "smallerMicroBatches"}) {
    EXPECT_TRUE(json[each].isNull() ||
                json["together"]["gpuSeconds"].asDouble() <= json[each]["gpuSeconds"].asDouble())
        << each;
  }
  EXPECT_LE(json["together"]["deviceBytes"].asInt64(), json["capacityBytes"].asInt64());
}

TEST(SwapOffload, SaysThatNothingSuffices) {
  const Outcome refused =
      run(run_swap, of_config({"--executor", "FSDP2", "--capacity", "2Gi", "--remedies"}));
  EXPECT_EQ(refused.code, kExitRefused);
  EXPECT_THAT(refused.out, HasSubstr("does not suffice"));
  EXPECT_THAT(refused.err, HasSubstr("nothing makes the training fit"));
  EXPECT_THAT(refused.err, HasSubstr("on up to 32 GPUs"));
}

TEST(SwapOffload, WrongUseOfRemediesIsExitTwo) {
  EXPECT_THAT(refusal(of_config({"--executor", "FSDP2", "--most-gpus", "8"})),
              HasSubstr("--most-gpus goes with --remedies"));
  EXPECT_THAT(refusal(of_config({"--executor", "FSDP2", "--remedies", "--most-gpus", "0"})),
              HasSubstr("--most-gpus"));
  EXPECT_THAT(refusal(of_config({"--executor", "FSDP2", "--remedies", "--measured", "0=1"})),
              HasSubstr("--measured does not go with --remedies"));
  EXPECT_THAT(refusal(of_config({"--remedies", "--batch-size", "8"})),
              HasSubstr("--remedies goes with --executor"));
}

}  // namespace
}  // namespace plimsoll::cli
