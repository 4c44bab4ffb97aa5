// plimsoll-fake-apiserver: keeps the fake API server running for a script, as long as the script lives.
//
//   plimsoll-fake-apiserver --kubeconfig-out FILE [--port 0] [--pid-file FILE] [--detach-from-parent]
//
// Writes FILE (a kubeconfig with admin rights) when the server is ready, and stops on SIGTERM, SIGINT, or
// when its parent dies.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <boost/program_options.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "tests/controlplane/fake_api_server.h"

namespace {

namespace options = boost::program_options;

constexpr int kExitUsage = 2;

// A file's appearance says that the server is ready, so it appears whole.
bool publish(const std::string& path, const std::string& source) {
  std::error_code failure;
  const std::string draft = path + ".new";
  std::filesystem::copy_file(source, draft, std::filesystem::copy_options::overwrite_existing, failure);
  if (!failure) {
    std::filesystem::rename(draft, path, failure);
  }
  if (failure) {
    std::cerr << "plimsoll-fake-apiserver: write " << path << ": " << failure.message() << "\n";
  }
  return !failure;
}

int serve(const std::string& kubeconfig, const std::string& pid_file, int port, bool outlives_parent) {
  sigset_t endings;
  sigemptyset(&endings);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    sigaddset(&endings, signal);
  }
  sigprocmask(SIG_BLOCK, &endings, nullptr);
  if (!outlives_parent) {
    const pid_t parent = getppid();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) {
      return 0;
    }
  }
  plimsoll::testing::FakeApiServerOptions server_options;
  server_options.port = port;
  auto server = plimsoll::testing::FakeApiServer::start(server_options);
  if (!server) {
    std::cerr << "plimsoll-fake-apiserver: " << server.error().message << "\n";
    return 1;
  }
  if (!pid_file.empty() && !(std::ofstream(pid_file) << getpid() << "\n")) {
    std::cerr << "plimsoll-fake-apiserver: cannot write " << pid_file << "\n";
    return 1;
  }
  if (!publish(kubeconfig, (*server)->kubeconfig())) {
    return 1;
  }
  int received = 0;
  sigwait(&endings, &received);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string kubeconfig;
  std::string pid_file;
  int port = 0;
  bool outlives_parent = false;
  options::options_description description("Options");
  auto add = description.add_options();
  add("help,h", "this text");
  add("kubeconfig-out", options::value(&kubeconfig)->value_name("FILE"),
      "where to write the kubeconfig, once the server is ready");
  add("port", options::value(&port)->value_name("PORT"), "port on 127.0.0.1; 0, the default: any free one");
  add("pid-file", options::value(&pid_file)->value_name("FILE"), "where to write the process id");
  add("detach-from-parent", options::bool_switch(&outlives_parent), "keep running when the parent has died");
  try {
    options::variables_map values;
    options::store(options::parse_command_line(argc, argv, description), values);
    options::notify(values);
    if (values.count("help") != 0) {
      std::cout << "Runs a fake Kubernetes API server on 127.0.0.1 until SIGTERM or its parent's end.\n"
                << description;
      return 0;
    }
  } catch (const options::error& mistake) {
    std::cerr << "plimsoll-fake-apiserver: " << mistake.what() << "\n";
    return kExitUsage;
  }
  if (kubeconfig.empty() || port < 0 || port > 65535) {
    std::cerr << "plimsoll-fake-apiserver: "
              << (kubeconfig.empty() ? "--kubeconfig-out is needed\n" : "no such port\n");
    return kExitUsage;
  }
  return serve(kubeconfig, pid_file, port, outlives_parent);
}
