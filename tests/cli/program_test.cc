#include <gmock/gmock.h>

#include "tests/cli/run_command.h"

namespace plimsoll::cli {
namespace {

using plimsoll::testing::Outcome;
using plimsoll::testing::run;
using ::testing::HasSubstr;

int run_with_our_commands(const std::vector<std::string>& arguments, Console& console) {
  static const std::vector<Command> some = {
      {"succeed", "Ends well", [](const std::vector<std::string>&) { return kExitDone; }},
      {"count", "Ends with the number of its arguments",
       [](const std::vector<std::string>& words) { return static_cast<int>(words.size()); }},
      {"exhaust", "Runs out of memory",
       [](const std::vector<std::string>&) -> int { throw std::bad_alloc(); }},
  };
  return run_program(arguments, some, console);
}

Outcome program(const std::vector<std::string>& arguments) {
  return run(run_with_our_commands, arguments);
}

TEST(Program, RunsTheCommandWithTheRestOfTheArguments) {
  EXPECT_EQ(program({"succeed"}).code, kExitDone);
  EXPECT_EQ(program({"count", "a", "b", "--c"}).code, 3);
}

TEST(Program, HelpListsTheCommands) {
  const Outcome help = program({"--help"});
  EXPECT_EQ(help.code, kExitDone);
  EXPECT_THAT(help.out, HasSubstr("  succeed  Ends well\n"));
  EXPECT_EQ(program({"help"}).out, help.out);
  EXPECT_EQ(program({"-h"}).out, help.out);
  EXPECT_EQ(program({"help", "count"}).code, 1);  // it was given --help
}

TEST(Program, MistakesAreExitTwoWithAHint) {
  const Outcome nothing = program({});
  EXPECT_EQ(nothing.code, kExitUsage);
  EXPECT_THAT(nothing.err, HasSubstr("Commands:"));
  EXPECT_THAT(program({"suceed"}).err, HasSubstr("unknown command suceed; did you mean succeed?"));
  EXPECT_THAT(program({"--nonsense"}).err, HasSubstr("unknown option --nonsense"));
  EXPECT_EQ(program({"zzz"}).code, kExitUsage);
  EXPECT_EQ(program({""}).code, kExitUsage);
  EXPECT_LT(program({std::string(100'000, 'x')}).err.size(), 1000U);
}

TEST(Program, RunningOutOfMemoryIsTold) {
  const Outcome outcome = program({"exhaust"});
  EXPECT_EQ(outcome.code, kExitUsage);
  EXPECT_THAT(outcome.err, HasSubstr("out of memory"));
}

TEST(Program, VersionIsAnOptionToo) {
  EXPECT_THAT(program({"--version"}).out, HasSubstr(PLIMSOLL_VERSION));
}

TEST(Commands, AreThoseOfTheDesign) {
  std::string names;
  for (const Command& command : commands()) {
    names += std::string(command.name) + " ";
    EXPECT_FALSE(std::string(command.summary).empty());
  }
  EXPECT_EQ(names, "estimate provision shard swap classify completion version ");
}

// Of the commands that are there, which may be more than this library's.
TEST(Program, CompletesItsOwnCommands) {
  EXPECT_THAT(program({"completion", "bash"}).out, HasSubstr("succeed"));
}

}  // namespace
}  // namespace plimsoll::cli
