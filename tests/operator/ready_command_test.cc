#include "operator/ready_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "operator/ops_server.h"
#include "tests/cli/run_command.h"
#include "tests/testing/eventually.h"

namespace plimsoll::process {
namespace {

using plimsoll::testing::eventually;
using plimsoll::testing::Outcome;
using plimsoll::testing::run;
using ::testing::HasSubstr;

// Ready from the given probe on.
class Process {
 public:
  explicit Process(int ready_from)
      : server_({.address = "127.0.0.1",
                 .port = 0,
                 .checks = {{"caches",
                             [this, ready_from]() -> Result<void> {
                               return ++probes_ >= ready_from
                                          ? Result<void>()
                                          : Error(ErrorCode::kUnavailable, "nothing listed yet");
                             }}},
                 .metrics = {}}) {
    EXPECT_TRUE(server_.start().ok());
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_.port()); }
  int probes() const { return probes_; }
  void stop() { server_.stop(); }

 private:
  std::atomic<int> probes_ = 0;
  OpsServer server_;
};

TEST(ReadyCommand, SaysWhatIsReady) {
  const Process webhook(1);
  const Process controllers(1);
  const Outcome outcome = run(run_ready, {"--url", webhook.url(), "--url", controllers.url()});
  EXPECT_EQ(outcome.code, cli::kExitDone) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(webhook.url() + " is ready\n[+]caches ok"));
  EXPECT_THAT(outcome.out, HasSubstr(controllers.url() + " is ready\n[+]caches ok"));
}

TEST(ReadyCommand, WaitsForAProcessThatBecomesReady) {
  const Process webhook(4);
  const Outcome outcome = run(run_ready, {"--url", webhook.url(), "--timeout", "5m"});
  EXPECT_EQ(outcome.code, cli::kExitDone) << outcome.err;
  EXPECT_EQ(webhook.probes(), 4);
}

TEST(ReadyCommand, NamesTheOneThatIsNot) {
  const Process webhook(1);
  const Process controllers(1 << 30);
  Outcome outcome;
  int seconds = 0;  // for both together: as many as the one that is ready needs here
  EXPECT_TRUE(eventually(
      "the one that is ready is named",
      [&] {
        outcome = run(run_ready, {"--url", webhook.url(), "--url", controllers.url(), "--timeout",
                                  std::to_string(++seconds) + "s"});
        return outcome.out;
      },
      HasSubstr(webhook.url() + " is ready")));
  EXPECT_EQ(outcome.code, cli::kExitRefused);
  EXPECT_THAT(outcome.err, HasSubstr(controllers.url() + " is not ready"));
}

TEST(ReadyCommand, FailsWhereNobodyListens) {
  Process gone(1);
  gone.stop();
  const Outcome outcome = run(run_ready, {"--url", gone.url(), "--timeout", "200ms"});
  EXPECT_EQ(outcome.code, cli::kExitRefused);
  EXPECT_THAT(outcome.err, HasSubstr(gone.url() + " is not ready"));
}

TEST(ReadyCommand, RefusesWrongUsage) {
  const std::vector<std::vector<std::string>> wrong = {{},
                                                       {"--url", "http://127.0.0.1:1", "--timeout", "soon"},
                                                       {"--url", "ftp://host"},
                                                       {"--url", "host:8081"}};
  for (const std::vector<std::string>& arguments : wrong) {
    const Outcome outcome = run(run_ready, arguments);
    EXPECT_EQ(outcome.code, cli::kExitUsage) << ::testing::PrintToString(arguments);
    EXPECT_NE(outcome.err, "");
  }
  EXPECT_THAT(run(run_ready, {"--help"}).out, HasSubstr("--timeout"));
}

}  // namespace
}  // namespace plimsoll::process
