#include "cli/graph_estimate.h"

#include <gmock/gmock.h>

#include "tests/cli/run_command.h"
#include "tests/cli/temporary_file.h"

namespace plimsoll::cli {
namespace {

using plimsoll::testing::Outcome;
using plimsoll::testing::run;
using plimsoll::testing::source_file;
using ::testing::HasSubstr;

const char* const kGraph = "tests/estimator/graphs/linear.json";

Outcome estimate_graph(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"--graph", source_file(kGraph), "--batch-size", "4"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run(run_estimate, arguments);
}

TEST(GraphEstimate, ExportedGraphsAreEstimated) {
  const Outcome outcome = estimate_graph({"--optimizer", "Adam", "--device", "cpu", "-o", "json"});
  ASSERT_EQ(outcome.code, kExitDone) << outcome.err;
  const Json json = outcome.json();
  EXPECT_EQ(json["peak"]["allocatedBytes"].asInt64(), 236);
  EXPECT_EQ(json["peakPhase"].asString(), "OptimizerStep");
  EXPECT_EQ(json["largestLive"][0]["name"].asString(), "input");
  EXPECT_TRUE(json["largestBatch"].isNull()) << "there is no card to fit";
  std::int64_t sum = 0;
  for (const Json& part : json["breakdown"]) {
    sum += part.asInt64();
  }
  EXPECT_EQ(sum, json["peak"]["upperBoundBytes"].asInt64());
  const Json table =
      estimate_graph({"--optimizer", "Adam", "--device", "cpu", "--gpu", "T4", "-o", "json"}).json();
  EXPECT_GT(table["largestBatch"].asInt64(), 1000);
  EXPECT_THAT(estimate_graph({"--optimizer", "SGD", "--device", "cpu"}).out, HasSubstr("alive at the peak"));
  const Json amp =
      estimate_graph({"--optimizer", "SGD", "--device", "cpu", "--method", "amp", "-o", "json"}).json();
  EXPECT_EQ(amp["method"].asString(), "amp");
  EXPECT_EQ(amp["breakdown"]["activationsBytes"].asInt64(), 32) << "the one result of forward";
}

TEST(GraphEstimate, ExplainsEachPart) {
  const Json json =
      estimate_graph({"--optimizer", "Adam", "--device", "cpu", "--explain", "-o", "json"}).json();
  ASSERT_EQ(json["explanation"].size(), 12U);
  EXPECT_EQ(json["explanation"][0]["part"].asString(), "parameters");
  EXPECT_THAT(estimate_graph({"--optimizer", "SGD", "--device", "cpu", "--explain"}).out,
              HasSubstr("how each part was computed"));
}

TEST(GraphEstimate, TablesAreSpreadOverTheTrainers) {
  const plimsoll::testing::TemporaryFile tables("user,100000,1,2.5\nitem,50000,2,1\n");
  const auto estimate = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"--graph",      source_file("tests/estimator/graphs/pooled.json"),
                                          "--batch-size", "64",
                                          "--optimizer",  "SGD",
                                          "-o",           "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(run_estimate, arguments);
  };
  const Outcome outcome = estimate({"--tables", tables.path(), "--trainers", "2"});
  ASSERT_EQ(outcome.code, kExitDone) << outcome.err;
  const Json json = outcome.json();
  EXPECT_GE(json["breakdown"]["embeddingsBytes"].asInt64(), 400'000)
      << "a table of 100,000 numbers of 4 bytes";
  ASSERT_EQ(json["ranks"].size(), 2U);
  EXPECT_GT(json["ranks"][0]["lookupBytes"].asInt64(), 0);
  EXPECT_TRUE(json["largestBatch"].isNull());
  const Json with_adam =
      estimate({"--tables", tables.path(), "--trainers", "2", "--embedding-optimizer", "Adam"}).json();
  EXPECT_GT(with_adam["breakdown"]["embeddingsBytes"].asInt64(),
            json["breakdown"]["embeddingsBytes"].asInt64());
  const Outcome nodes = estimate({"--tables", tables.path(), "--trainers", "4", "--per-node", "2", "--allow",
                                  "user=table_row_wise", "--allow", "item=table_row_wise"});
  ASSERT_EQ(nodes.code, kExitDone) << nodes.err;
  EXPECT_EQ(nodes.json()["sharding"]["plan"][0]["shards"].size(), 2U) << "a table is cut within one host";
  for (const char* wrong : {"3", "0", "two"}) {
    EXPECT_EQ(estimate({"--tables", tables.path(), "--trainers", "4", "--per-node", wrong}).code, kExitUsage);
  }
  const Outcome without = estimate({});
  EXPECT_EQ(without.code, kExitRefused);
  EXPECT_THAT(without.err, HasSubstr("spec.model.embeddings"));
  EXPECT_EQ(estimate({"--tables", "/no/such/file"}).code, kExitUsage);
  EXPECT_EQ(estimate({"--tables", tables.path(), "--embedding-optimizer", "Adafactor"}).code, kExitUsage);
}

TEST(GraphEstimate, GraphsThatLackATraceAreRefused) {
  const Outcome outcome = estimate_graph({"--optimizer", "Adam", "--device", "cuda", "-o", "json"});
  EXPECT_EQ(outcome.code, kExitRefused);
  EXPECT_EQ(outcome.json()["code"].asString(), "Unsupported");
  EXPECT_THAT(outcome.err, HasSubstr("plimsoll.export"));
}

TEST(GraphEstimate, WrongUsageOfGraphsIsExitTwo) {
  EXPECT_EQ(run(run_estimate, {"--graph", source_file(kGraph), "--batch-size", "4"}).code, kExitUsage);
  EXPECT_EQ(run(run_estimate, {"--graph", "/no/such/file", "--batch-size", "4", "--optimizer", "SGD"}).code,
            kExitUsage);
  EXPECT_EQ(
      run(run_estimate, {"--graph", source_file("README.md"), "--batch-size", "4", "--optimizer", "SGD"})
          .code,
      kExitUsage);
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"--optimizer", "Adom"},
                                             {"--optimizer", "Adam", "--device", "tpu"},
                                             {"--optimizer", "Adam", "--precision", "FP31"},
                                             {"--optimizer", "Adam", "--foreach", "--fused"},
                                             {"--optimizer", "Adam", "--accumulate", "3"},
                                             {"--optimizer", "Adam", "--checkpoint", "PerModule"},
                                             {"--optimizer", "Adam", "--gpu", "Z9"},
                                             {"--optimizer", "Adam", "--trainers", "0"},
                                             {"--optimizer", "Adam", "-f", "job.yaml"}}) {
    EXPECT_EQ(estimate_graph(wrong).code, kExitUsage) << wrong.back();
  }
}

Outcome estimate_gpt(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"--graph",      source_file("tests/estimator/graphs/gpt.json"),
                                        "--batch-size", "8",
                                        "--optimizer",  "Adam",
                                        "--device",     "cpu",
                                        "-o",           "json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run(run_estimate, arguments);
}

TEST(GraphEstimate, ACheckpointTakesHostMemory) {
  const auto host = [](const char* how) {
    const Outcome outcome =
        estimate_gpt({"--parallelism", "FSDP2", "--trainers", "4", "--checkpoint-saving", how});
    return outcome.json()["hostBytes"]["checkpoint"].asInt64();
  };
  EXPECT_EQ(host("None"), 0);
  EXPECT_GT(host("ShardedAsync"), 0) << "what a trainer owns";
  EXPECT_GT(host("FullOffloaded"), host("ShardedAsync")) << "everything, on rank 0";
  EXPECT_EQ(estimate_gpt({"--checkpoint-saving", "All"}).code, kExitUsage);
}

TEST(GraphEstimate, GraphsAreSplitAndStaged) {
  const std::int64_t whole = estimate_gpt({}).json()["peak"]["allocatedBytes"].asInt64();
  const Json tensor = estimate_gpt({"--trainers", "2", "--parallelism", "Tensor"}).json();
  EXPECT_LT(tensor["peak"]["allocatedBytes"].asInt64(), whole);
  EXPECT_THAT(tensor["warnings"][0].asString(), HasSubstr("by columns k, q, up, v"));
  const Json named = estimate_gpt({"--trainers", "2", "--tensor", "2", "--split-columns", "*.q",
                                   "--split-columns", "k", "--split-columns", "v", "--split-columns", "up",
                                   "--split-rows", "out", "--split-rows", "*.down"})
                         .json();
  EXPECT_EQ(named["peak"], tensor["peak"]);
  EXPECT_EQ(named["warnings"].size(), 0u);
  const Json pipeline =
      estimate_gpt({"--trainers", "4", "--parallelism", "Pipeline", "--microbatches", "4"}).json();
  ASSERT_EQ(pipeline["ranks"].size(), 4u);
  const Json both = estimate_gpt({"--trainers", "8", "--pipeline", "2", "--tensor", "2", "--microbatches",
                                  "4", "--pipeline-chunks", "2", "--stage-blocks", "blocks.*"})
                        .json();
  EXPECT_EQ(both["ranks"].size(), 2u);
  EXPECT_GT(both["breakdown"]["ddpBucketsBytes"].asInt64(), 0);
  EXPECT_EQ(estimate_gpt({"--next-batch-early"}).json()["peak"], estimate_gpt({}).json()["peak"])
      << "the CPU has no cache";
  EXPECT_GT(estimate_gpt({"--no-set-to-none"}).json()["peak"]["allocatedBytes"].asInt64(), whole);
  EXPECT_GT(estimate_gpt({"--averaged-model"}).json()["peak"]["allocatedBytes"].asInt64(), whole);
  EXPECT_EQ(estimate_gpt({"--last-batch-size", "1"}).json()["peak"]["allocatedBytes"].asInt64(), whole);
  EXPECT_GT(estimate_gpt({"--validation-batch-size", "4096"}).json()["peak"]["allocatedBytes"].asInt64(),
            whole);
  EXPECT_EQ(estimate_gpt({"--last-batch-size", "1000000"}).code, kExitUsage);
  EXPECT_EQ(estimate_gpt({"--grad-scaler"}).code, kExitUsage) << "FP32 needs none";
  EXPECT_EQ(estimate_gpt({"--cudnn-benchmark"}).code, kExitUsage) << "the CPU has no cuDNN";
  const Json late = estimate_gpt({"--zero-grad", "before-backward"}).json();
  EXPECT_GE(late["peak"]["allocatedBytes"].asInt64(), whole);
  const Outcome refused = estimate_gpt({"--trainers", "2", "--tensor", "2", "--split-columns", "head"});
  EXPECT_EQ(refused.code, kExitRefused);
  EXPECT_THAT(refused.json()["reason"].asString(), HasSubstr("aten::_log_softmax"));
}

TEST(GraphEstimate, WrongUsageOfSplitsIsExitTwo) {
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {"--split-columns", "up"},
           {"--microbatches", "4"},
           {"--zero-grad", "never"},
           {"--checkpoint", "Half"},
           {"--stage-blocks", "blocks.*"},
           {"--trainers", "2", "--tensor", "4"},
           {"--trainers", "2", "--tensor", "2", "--parallelism", "Tensor"},
           {"--trainers", "2", "--pipeline", "2", "--microbatches", "3"},
           {"--trainers", "2", "--pipeline", "2", "--microbatches", "4", "--accumulate", "4"},
           {"--trainers", "2", "--parallelism", "Tensors"}}) {
    EXPECT_EQ(estimate_gpt(wrong).code, kExitUsage) << wrong.back();
  }
}

}  // namespace
}  // namespace plimsoll::cli
