// plimsoll-controlplane: keeps a real control plane running for a script, as long as the script lives.
//
//   plimsoll-controlplane --kubeconfig-out FILE [--controllers] [--kwok] [--detach-from-parent]
//
// Writes FILE (a kubeconfig with admin rights) when the API server is ready, and stops everything on SIGTERM,
// SIGINT, or when its parent dies (unless it is told to outlive it). Exit 3: no control plane on this
// machine.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <boost/program_options.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "tests/controlplane/binaries.h"
#include "tests/controlplane/real_api_server.h"

namespace {

namespace options = boost::program_options;

constexpr int kExitUsage = 2;
constexpr int kExitNotToBeHad = 3;

sigset_t ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  return set;
}

int serve(const std::string& kubeconfig, const plimsoll::testing::ApiServerOptions& parts,
          bool outlives_parent) {
  const sigset_t endings = ending_signals();
  sigprocmask(SIG_BLOCK, &endings, nullptr);
  const pid_t parent = getppid();
  if (!outlives_parent && (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() != parent)) {
    return 0;
  }
  plimsoll::Result<std::unique_ptr<plimsoll::testing::ApiServer>> server =
      plimsoll::testing::start_real_api_server(parts);
  if (!server) {
    std::cerr << "plimsoll-controlplane: " << server.error().message << "\n";
    return plimsoll::testing::control_plane_folder() ? 1 : kExitNotToBeHad;
  }
  // The file's appearance says that the server is ready, so it appears whole.
  std::error_code failure;
  const std::string draft = kubeconfig + ".new";
  std::filesystem::copy_file((*server)->kubeconfig(), draft,
                             std::filesystem::copy_options::overwrite_existing, failure);
  if (!failure) {
    std::filesystem::rename(draft, kubeconfig, failure);
  }
  if (failure) {
    std::cerr << "plimsoll-controlplane: write " << kubeconfig << ": " << failure.message() << "\n";
    return 1;
  }
  int received = 0;
  sigwait(&endings, &received);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  plimsoll::testing::ApiServerOptions parts;
  bool controllers = false;
  bool outlives_parent = false;
  std::string kubeconfig;
  options::options_description description("Options");
  description.add_options()("help,h", "this text")("kubeconfig-out",
                                                   options::value(&kubeconfig)->value_name("FILE"),
                                                   "where to write the kubeconfig, once the server is ready")(
      "controllers", options::bool_switch(&controllers), "run controller-manager and scheduler too")(
      "kwok", options::bool_switch(&parts.kwok), "run kwok, which pretends nodes and their pods")(
      "detach-from-parent", options::bool_switch(&outlives_parent), "keep running when the parent has died");
  try {
    options::variables_map values;
    options::store(options::parse_command_line(argc, argv, description), values);
    options::notify(values);
    if (values.count("help") != 0) {
      std::cout << "Runs a real Kubernetes control plane until SIGTERM or its parent's end.\n" << description;
      return 0;
    }
  } catch (const options::error& mistake) {
    std::cerr << "plimsoll-controlplane: " << mistake.what() << "\n";
    return kExitUsage;
  }
  if (kubeconfig.empty()) {
    std::cerr << "plimsoll-controlplane: --kubeconfig-out is needed\n";
    return kExitUsage;
  }
  parts.controller_manager = controllers;
  parts.scheduler = controllers;
  return serve(kubeconfig, parts, outlives_parent);
}
