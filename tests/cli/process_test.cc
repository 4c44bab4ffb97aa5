// The program as a process: what scripts meet.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/json/json.h"
#include "tests/checkout.h"
#include "tests/cli/run_command.h"
#include "tests/cli/temporary_file.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Runs `plimsoll <arguments>` through the shell, so that redirections can be given; 124 is a time-out, 128
// and more a signal.
Outcome plimsoll(const std::string& arguments) {
  const TemporaryFile out("");
  const TemporaryFile err("");
  const std::string command = std::string("( timeout 60 ") + PLIMSOLL_BINARY + " " + arguments + " ) >" +
                              out.path() + " 2>" + err.path();
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), content(out.path()),
          content(err.path())};
}

std::string quoted(const std::string& path) {
  return "'" + path + "'";
}

TEST(Process, AnswersAsTheFunctionsDo) {
  const std::string files = "-f " + quoted(source_file("examples/single-gpu.yaml")) + " --cluster " +
                            quoted(source_file("examples/cluster.yaml"));
  const Outcome outcome = plimsoll("provision " + files + " -o json");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.json()["decision"]["trainers"].asInt64(), 2) << "a quarter of the eight that it requests";
  EXPECT_EQ(
      plimsoll("provision " + files + " --min-share-of-asked 0% -o json").json()["decision"]["trainers"], 1);
  EXPECT_EQ(plimsoll("provision " + files + " --min-share-of-asked 0.25").code, 2);
  EXPECT_EQ(plimsoll("provision -f - --cluster " + quoted(source_file("examples/cluster.yaml")) + " <" +
                     quoted(source_file("examples/single-gpu.yaml")))
                .code,
            0);
}

TEST(Process, HelpAndMistakes) {
  EXPECT_EQ(plimsoll("--help").code, 0);
  EXPECT_THAT(plimsoll("--help").out, HasSubstr("webhook"));
  EXPECT_THAT(plimsoll("--help").out, HasSubstr("operator"));
  EXPECT_EQ(plimsoll("").code, 2);
  EXPECT_EQ(plimsoll("nonsense").code, 2);
  for (const char* command :
       {"estimate", "provision", "shard", "swap", "completion", "version", "webhook", "operator"}) {
    EXPECT_EQ(plimsoll(std::string(command) + " --help").code, 0) << command;
    EXPECT_EQ(plimsoll(std::string(command) + " --no-such-option").code, 2) << command;
  }
}

TEST(Process, OutputThatCannotBeWrittenIsNoSuccess) {
  const Outcome outcome = plimsoll("version >/dev/full");
  EXPECT_EQ(outcome.code, 2);
}

TEST(Process, BashCompletes) {
  const TemporaryFile script(std::string("source <(") + PLIMSOLL_BINARY +
                             " completion bash); COMP_WORDS=(plimsoll shard --t); COMP_CWORD=2; _plimsoll; "
                             "echo \"${COMPREPLY[*]}\"");
  const TemporaryFile out("");
  ASSERT_EQ(std::system(("bash " + script.path() + " >" + out.path()).c_str()), 0);
  EXPECT_EQ(content(out.path()), "--tables --trainers --topology --time-slack --timeout\n");
}

class Malformed : public ::testing::TestWithParam<std::string> {};

// Every broken file ends with exit 1 or 2 and a reason, whoever reads it.
TEST_P(Malformed, EndsWithAReason) {
  const std::string file = quoted(source_file("tests/cli/malformed/" + GetParam()));
  for (const std::string& arguments :
       {"estimate -f " + file, "estimate -o json -f - <" + file,
        "provision -f " + file + " --cluster " + quoted(source_file("examples/cluster.yaml")),
        "provision -f " + quoted(source_file("examples/single-gpu.yaml")) + " --cluster " + file,
        "shard --trainers 2 --hbm 1Gi --batch-size 1 --tables " + file}) {
    const Outcome outcome = plimsoll(arguments);
    EXPECT_TRUE(outcome.code == 1 || outcome.code == 2) << outcome.code << " from " << arguments;
    EXPECT_THAT(outcome.err, HasSubstr("plimsoll: ")) << arguments;
  }
}

std::vector<std::string> malformed_files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(source_file("tests/cli/malformed"))) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Files, Malformed, ::testing::ValuesIn(malformed_files()),
                         [](const ::testing::TestParamInfo<std::string>& file) {
                           std::string name = file.param;
                           std::replace_if(
                               name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; },
                               '_');
                           return name;
                         });

TEST(MalformedFiles, AreAtLeastFifty) {
  EXPECT_GE(malformed_files().size(), 50U);
}

TEST(MalformedFiles, FoldersAndMissingFilesToo) {
  for (const char* path : {"/", "/no/such/file", "/dev/zero", "''"}) {
    const Outcome outcome = plimsoll(std::string("estimate -f ") + path);
    EXPECT_EQ(outcome.code, 2) << path;
    EXPECT_FALSE(outcome.err.empty()) << path;
  }
}

}  // namespace
}  // namespace plimsoll::testing
