#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/controlplane/api_server.h"
#include "tests/testing/eventually.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

TEST(RunCommand, KeepsOutputAndErrorsApart) {
  const CommandResult result = run_command({"/bin/sh", "-c", "echo out; echo err >&2; exit 4"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_EQ(result.output, "out\n");
  EXPECT_EQ(result.errors, "err\n");
}

TEST(RunCommand, FeedsStandardInputWholeAndReadsItBack) {
  std::string text;
  while (text.size() < (3U << 20)) {
    text += "a line that is longer than nothing " + std::to_string(text.size()) + "\n";
  }
  const CommandResult result = run_command({"cat"}, text);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(result.output == text) << result.output.size() << " of " << text.size();
}

// Each side would wait for the other if outputs were read one after the other.
TEST(RunCommand, DrainsBothOutputsAtOnce) {
  const CommandResult result =
      run_command({"/bin/sh", "-c", "head -c 3000000 /dev/zero >&2; head -c 2000000 /dev/zero"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output.size(), 2'000'000U);
  EXPECT_EQ(result.errors.size(), 3'000'000U);
}

TEST(RunCommand, SurvivesAReaderThatReadsNothing) {
  const CommandResult result = run_command({"true"}, std::string(5U << 20, 'x'));
  EXPECT_EQ(result.exit_code, 0);
}

TEST(RunCommand, KillsWhatPassesItsDeadline) {
  std::chrono::seconds limit{0};  // and more where the shell does not get that far in it
  EXPECT_TRUE(eventually(
      "the output before the deadline",
      [&] {
        const CommandResult result = run_command({"/bin/sh", "-c", "echo early; sleep 600"}, {}, ++limit);
        EXPECT_EQ(result.exit_code, 124);
        return result.output;
      },
      "early\n"));
}

TEST(RunCommand, DoesNotWaitForABackgroundChildThatHoldsTheOutput) {
  const CommandResult result = run_command({"/bin/sh", "-c", "sleep 600 & echo done"}, {}, 30s);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.output, "done\n");
}

TEST(RunCommand, TellsASignalAndAMissingProgram) {
  EXPECT_EQ(run_command({"/bin/sh", "-c", "kill -15 $$"}).exit_code, 128 + SIGTERM);
  const CommandResult missing = run_command({"/no/such/program"});
  EXPECT_EQ(missing.exit_code, -1);
  EXPECT_THAT(missing.errors, HasSubstr("/no/such/program"));
}

}  // namespace
}  // namespace plimsoll::testing
