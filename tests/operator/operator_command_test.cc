// The operator at work is tested in tests/e2e.
#include "operator/operator_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/cli/temporary_file.h"

namespace plimsoll::process {
namespace {

using ::testing::HasSubstr;

TEST(OperatorCommand, ExplainsItselfAndRefusesWrongUsage) {
  sigset_t before;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
  EXPECT_EQ(run_operator_command({"--help"}), 0);
  const plimsoll::testing::TemporaryFile wrong("- {rule: proof, outcome: Oom, text: [a]}");
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--nonsense"},
                                                    {"stray"},
                                                    {"--ops-port"},
                                                    {"--ops-port", "-1"},
                                                    {"--metrics-port", "https"},
                                                    {"--metrics-secure=false", "--metrics-port-file", "f"},
                                                    {"--log-level", "loud"},
                                                    {"--kubeconfig", "/nowhere/config"},
                                                    {"--failure-patterns", "/nowhere/patterns.yaml"},
                                                    {"--failure-patterns", wrong.path()},
                                                    {"--gpu-catalog", "/nowhere/gpus.yaml"}}) {
    EXPECT_EQ(run_operator_command(arguments), 2) << arguments.front();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);  // servers block their stop signals
}

// What it prints about a command line that it refuses.
std::string refusal_of(const std::vector<std::string>& arguments) {
  ::testing::internal::CaptureStderr();
  const int code = run_operator_command(arguments);
  const std::string printed = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, 2) << printed;
  return printed;
}

TEST(OperatorCommand, NamesTheOptionThatIsWrong) {
  for (const char* option : {"--exclude-namespace", "--namespace"}) {
    for (const char* name : {"Sandbox", "sandbox,legacy", "team_a"}) {
      EXPECT_THAT(refusal_of({std::string(option) + "=" + name}),
                  HasSubstr(std::string(option) + " must be the name of one namespace"));
    }
  }
  EXPECT_THAT(refusal_of({"--feature-gates=Nonsense=true"}),
              HasSubstr("--feature-gates: there is no feature gate \"Nonsense\""));
  const std::string dcgm = "--prometheus-url=http://127.0.0.1:9";
  EXPECT_THAT(refusal_of({"--feature-gates=DCGMLearning=false", dcgm}),
              HasSubstr("--prometheus-url: the feature gate DCGMLearning is off"));
  // With the gate on, what is wrong is the option that is read after it.
  EXPECT_THAT(refusal_of({dcgm, "--log-level=loud"}), HasSubstr("--log-level"));
}

}  // namespace
}  // namespace plimsoll::process
