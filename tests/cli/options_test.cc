#include "cli/options.h"

#include <gmock/gmock.h>

#include "tests/cli/run_command.h"

namespace plimsoll::cli {
namespace {

using plimsoll::testing::run;
using ::testing::HasSubstr;

TEST(Options, NamesAreTakenInAnyCase) {
  const auto json = run(run_version, {"-o", "JSON"});
  EXPECT_EQ(json.code, 0) << json.err;
  EXPECT_EQ(json.out, run(run_version, {"-o", "json"}).out);
}

TEST(Options, MistakesAreExitTwoWithAHint) {
  for (const auto command : {run_estimate, run_provision, run_shard, run_swap, run_version}) {
    const auto unknown = run(command, {"--outptu", "json"});
    EXPECT_EQ(unknown.code, kExitUsage);
    EXPECT_THAT(unknown.err, HasSubstr("did you mean --output?"));
    EXPECT_EQ(run(command, {"stray"}).code, kExitUsage);
    EXPECT_EQ(run(command, {"-o"}).code, kExitUsage);
    EXPECT_EQ(run(command, {"-o", "xml"}).code, kExitUsage);
    EXPECT_EQ(run(command, {"-o", "json", "-o", "yaml"}).code, kExitUsage);
    EXPECT_EQ(run(command, {""}).code, kExitUsage);
    EXPECT_EQ(run(command, {"--"}).out, run(command, {"--"}).out);
  }
}

TEST(Options, NamesAreNotGuessed) {
  EXPECT_EQ(run(run_version, {"--outp", "json"}).code, kExitUsage);
}

int complete(const std::vector<std::string>& arguments, Console& console) {
  return run_completion(arguments, commands(), console);
}

TEST(Options, HelpShowsUsageOptionsAndExamples) {
  for (const auto command : {run_estimate, run_provision, run_shard, run_swap, run_version, complete}) {
    const auto help = run(command, {"--help"});
    EXPECT_EQ(help.code, kExitDone);
    EXPECT_THAT(help.out, HasSubstr("Usage: plimsoll "));
    EXPECT_THAT(help.out, HasSubstr("Options:"));
    EXPECT_THAT(help.out, HasSubstr("Examples:\n  "));
    EXPECT_EQ(help.err, "");
    EXPECT_EQ(run(command, {"-h"}).out, help.out);
  }
}

}  // namespace
}  // namespace plimsoll::cli
