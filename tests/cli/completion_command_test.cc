// That bash takes the script is tested in process_test.cc.
#include <gmock/gmock.h>

#include "tests/cli/run_command.h"

namespace plimsoll::cli {
namespace {

using plimsoll::testing::Outcome;
using plimsoll::testing::run;
using ::testing::HasSubstr;
using ::testing::Not;

int complete(const std::vector<std::string>& arguments, Console& console) {
  return run_completion(arguments, commands(), console);
}

TEST(Completion, KnowsEveryCommandAndOption) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Outcome outcome = run(complete, {shell});
    EXPECT_EQ(outcome.code, kExitDone);
    for (const Command& command : commands()) {
      EXPECT_THAT(outcome.out, HasSubstr(command.name)) << shell;
    }
    for (const char* option : {"topology", "kubeconfig", "method", "verify"}) {
      EXPECT_THAT(outcome.out, HasSubstr(option)) << shell;
    }
  }
  EXPECT_THAT(run(complete, {"zsh"}).out, HasSubstr("#compdef plimsoll"));
  EXPECT_EQ(run(complete, {}).code, kExitUsage);
  EXPECT_EQ(run(complete, {"tcsh"}).code, kExitUsage);
  EXPECT_EQ(run(complete, {"bash", "zsh"}).code, kExitUsage);
  EXPECT_EQ(run(complete, {"--bash"}).code, kExitUsage);
}

TEST(Completion, OffersTheValuesOfAnOptionWhereTheyAreFew) {
  EXPECT_THAT(run(complete, {"bash"}).out,
              HasSubstr("--method)\n      COMPREPLY=($(compgen -W \"plimsoll amp\""));
  EXPECT_THAT(run(complete, {"fish"}).out, HasSubstr("-l method -x -a \"plimsoll amp\""));
}

TEST(Completion, IsOfTheGivenCommandsAlone) {
  const auto one = [](const std::vector<std::string>& arguments, Console& console) {
    const Command only{"dance", "", nullptr};
    return run_completion(arguments, {&only, 1}, console);
  };
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Outcome outcome = run(one, {shell});
    EXPECT_EQ(outcome.code, kExitDone);
    EXPECT_THAT(outcome.out, HasSubstr("dance help"));
    EXPECT_THAT(outcome.out, Not(HasSubstr("provision")));
  }
}

}  // namespace
}  // namespace plimsoll::cli
