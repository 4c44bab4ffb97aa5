#include "tests/controlplane/subprocess.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/controlplane/process_tree.h"
#include "tests/controlplane/scratch_directory.h"
#include "tests/testing/eventually.h"
#include "tests/testing/patience.h"

namespace plimsoll::testing {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kLong = kPatience;

std::unique_ptr<Subprocess> shell(const std::string& script, const std::string& log = {}) {
  SubprocessOptions options;
  options.arguments = {"/bin/sh", "-c", script};
  options.log_file = log;
  options.environment = {"GREETING=hello there"};
  Result<std::unique_ptr<Subprocess>> started = Subprocess::start(options);
  EXPECT_TRUE(started.ok()) << to_string(started.error());
  return *std::move(started);
}

TEST(Subprocess, TellsItsExitCode) {
  EXPECT_EQ(shell("exit 7")->wait_for_exit(kLong), 7);
  EXPECT_EQ(shell("kill -9 $$")->wait_for_exit(kLong), 128 + SIGKILL);
}

TEST(Subprocess, WritesOutputAndErrorsToItsLog) {
  const auto scratch = ScratchDirectory::create();
  ASSERT_TRUE(scratch.ok());
  const std::string log = (*scratch)->file("log");
  shell("echo $GREETING; echo trouble >&2", log)->wait_for_exit(kLong);
  EXPECT_EQ(tail_of_file(log), "hello there\ntrouble\n");
  EXPECT_EQ(tail_of_file(log, 4), "ble\n");
  EXPECT_EQ(tail_of_file((*scratch)->file("none")), "");
}

TEST(Subprocess, SaysWhyAProgramCannotStart) {
  SubprocessOptions options;
  options.arguments = {"/no/such/program"};
  const auto started = Subprocess::start(options);
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(started.error().message, HasSubstr("/no/such/program"));
  EXPECT_THAT(started.error().message, HasSubstr("No such file"));
}

TEST(Subprocess, RunsInARootAndAsAUserOfItsOwn) {
  if (geteuid() != 0) {
    GTEST_SKIP() << "changing the root folder needs root";
  }
  const auto scratch = ScratchDirectory::create();
  ASSERT_TRUE(scratch.ok());
  const std::string log = (*scratch)->file("log");
  SubprocessOptions options;
  options.arguments = {"/bin/sh", "-c", "id -u; id -G; pwd; [ -w /etc ] || echo a stranger"};
  options.log_file = log;
  options.confinement = {.root = "/", .user = 65532};
  const auto started = Subprocess::start(options);
  ASSERT_TRUE(started.ok()) << to_string(started.error());
  EXPECT_EQ((*started)->wait_for_exit(kLong), 0);
  EXPECT_EQ(tail_of_file(log), "65532\n65532\n/\na stranger\n");

  options.confinement.root = (*scratch)->path();  // where there is no shell
  EXPECT_FALSE(Subprocess::start(options).ok());
  options.confinement.root = (*scratch)->file("none");
  const auto nowhere = Subprocess::start(options);
  ASSERT_FALSE(nowhere.ok());
  EXPECT_THAT(nowhere.error().message, HasSubstr("No such file"));
}

TEST(Subprocess, StopAsksThenKills) {
  const auto scratch = ScratchDirectory::create();
  ASSERT_TRUE(scratch.ok());
  const auto ready = [&](const std::string& name, const std::string& trap) {
    const std::string log = (*scratch)->file(name);
    auto process = shell(trap + "; echo ready; while :; do sleep 0.01; done", log);
    EXPECT_TRUE(eventually(
        "the trap is set", [&] { return tail_of_file(log); }, "ready\n"));
    return process;
  };
  EXPECT_EQ(ready("polite", "trap 'exit 3' TERM")->stop(kLong), 3);
  const auto deaf = ready("deaf", "trap '' TERM");
  EXPECT_EQ(deaf->stop(200ms), 128 + SIGKILL);
  EXPECT_FALSE(deaf->running());
}

TEST(Subprocess, DestructorEndsTheWholeGroup) {
  const auto scratch = ScratchDirectory::create();
  ASSERT_TRUE(scratch.ok());
  const std::string log = (*scratch)->file("log");
  pid_t grandchild = 0;
  {
    auto parent = shell("sleep 600 & echo $!; wait", log);
    EXPECT_TRUE(eventually(
        "the grandchild's id",
        [&] {
          std::ifstream(log) >> grandchild;
          return grandchild;
        },
        ::testing::Ne(0)));
    EXPECT_FALSE(process_ended(grandchild));
  }
  EXPECT_TRUE(wait_until_ended(grandchild, kLong));
}

// The test process itself may be killed with SIGKILL (a time limit of ctest); a fork plays its part.
TEST(Subprocess, DiesWithAKilledTest) {
  int report[2];
  ASSERT_EQ(pipe(report), 0);
  const pid_t test = fork();
  if (test == 0) {
    auto child = shell("sleep 600");
    const pid_t pid = child->pid();
    [[maybe_unused]] const ssize_t written = write(report[1], &pid, sizeof(pid));
    pause();
    _exit(0);
  }
  pid_t child = 0;
  ASSERT_EQ(read(report[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  EXPECT_FALSE(process_ended(child));
  kill(test, SIGKILL);
  waitpid(test, nullptr, 0);
  EXPECT_TRUE(wait_until_ended(child, kLong));
  close(report[0]);
  close(report[1]);
}

}  // namespace
}  // namespace plimsoll::testing
