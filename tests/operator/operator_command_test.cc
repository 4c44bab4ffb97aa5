// The operator at work is tested in tests/e2e.
#include "operator/operator_command.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "tests/cli/temporary_file.h"

namespace plimsoll::process {
namespace {

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

}  // namespace
}  // namespace plimsoll::process
