#include "cli/answer_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/run_command.h"

namespace plimsoll::cli {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

Result<std::chrono::milliseconds> timeout_of(const std::vector<std::string>& arguments) {
  po::options_description options;
  add_timeout_option(options);
  po::variables_map values;
  po::store(po::command_line_parser(arguments).options(options).run(), values);
  OptionReader reader(values);
  const std::chrono::milliseconds timeout = read_timeout(reader);
  return reader.error() ? Result<std::chrono::milliseconds>(*reader.error()) : timeout;
}

TEST(AnswerBudget, ATimeIsADuration) {
  EXPECT_EQ(*timeout_of({}), kDefaultTimeout);
  EXPECT_EQ(*timeout_of({"--timeout", "90s"}), seconds(90));
  EXPECT_EQ(*timeout_of({"--timeout", "1m30s"}), seconds(90));
  EXPECT_EQ(*timeout_of({"--timeout", "5m"}), seconds(300));
  EXPECT_EQ(*timeout_of({"--timeout", "24h"}), seconds(86400));
}

TEST(AnswerBudget, AnyOtherTimeIsRefused) {
  for (const char* text : {"0", "0s", "999ms", "-1s", "25h", "90", "1d", "s", "", "9223372036854775807h"}) {
    EXPECT_FALSE(timeout_of({"--timeout", text})) << text;
  }
}

TEST(AnswerBudget, WhatTakesTooLongSaysHowToGiveItMore) {
  AnswerBudget budget(seconds(0));
  const Result<int> answer = budget.run([&]() -> Result<int> {
    budget.get()->charge(1);
    return 1;
  });
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(answer.error().message, HasSubstr("--timeout gives more time"));
}

// It took minutes, and gigabytes, on the command line alone.
TEST(AnswerBudget, AJobThatIsTooLongToEstimateEndsAtItsTimeout) {
  const std::string job = R"(
apiVersion: plimsoll.dev/v1alpha1
kind: TrainingJob
metadata: {name: huge}
spec:
  model:
    transformer: {layers: 65536, hidden: 1024, heads: 16, ffn: 4096, vocab: 32000, seqLen: 1024}
  training:
    batchSizePerTrainer: 1048576
    gradientAccumulation: 65536
    optimizer: AdamW
    precision: BF16Mixed
    parallelism: {strategy: DDP, pipeline: 512}
  trainers: {replicas: 512}
  template: {spec: {containers: [{name: trainer}]}}
)";
  const testing::Outcome outcome = testing::run(run_estimate, {"-f", "-", "--timeout", "1s"}, job);
  EXPECT_EQ(outcome.code, kExitRefused);
  EXPECT_THAT(outcome.err, HasSubstr("spec.training.parallelism.pipeline = 512"));
  EXPECT_THAT(outcome.err, HasSubstr("--timeout"));
}

TEST(AnswerBudget, EachCommandThatComputesTakesATimeout) {
  for (const testing::Subcommand command : {run_estimate, run_provision, run_shard, run_swap}) {
    EXPECT_THAT(testing::run(command, {"--help"}).out, HasSubstr("--timeout TIME"));
  }
}

}  // namespace
}  // namespace plimsoll::cli
