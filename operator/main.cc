// The one binary: the client's subcommands and the two servers.
#include <vector>

#include "cli/command.h"
#include "kube/transport.h"
#include "operator/operator_command.h"
#include "operator/ready_command.h"
#include "operator/webhook_command.h"

int main(int argc, char** argv) {
  plimsoll::kube::initialise_transport();
  std::vector<plimsoll::cli::Command> commands(plimsoll::cli::commands().begin(),
                                               plimsoll::cli::commands().end());
  commands.push_back({"ready", "Ask server processes whether they are ready",
                      plimsoll::process::run_ready_command, plimsoll::process::ready_options});
  commands.push_back({"webhook", "Serve the admission webhook (runs in the cluster)",
                      plimsoll::process::run_webhook_command});
  commands.push_back(
      {"operator", "Run the controllers (runs in the cluster)", plimsoll::process::run_operator_command});
  return plimsoll::cli::run_program(argc, argv, commands);
}
