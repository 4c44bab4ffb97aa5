// `plimsoll webhook` and `plimsoll operator` as child processes of a test, on ports of their own choice.
//
//   auto webhook = PlimsollProcess::start("webhook", {"--certificate-directory=..."},
//                                        server->kubeconfig(), server->directory());
//   (*webhook)->port();
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "tests/controlplane/subprocess.h"

namespace plimsoll::testing {

class PlimsollProcess {
 public:
  // Waits until /readyz of the process says that it is ready. Its log and port files go into `directory`,
  // under `name` (empty: the subcommand's), by which processes of one subcommand are told apart. Errors: with
  // what it said last.
  static Result<std::unique_ptr<PlimsollProcess>> start(const std::string& subcommand,
                                                        const std::vector<std::string>& options,
                                                        const std::string& kubeconfig,
                                                        const std::string& directory,
                                                        const std::string& name = {});
  // The same, without waiting: what is started may be killed before it is ready.
  static Result<std::unique_ptr<PlimsollProcess>> launch(const std::string& subcommand,
                                                         const std::vector<std::string>& options,
                                                         const std::string& kubeconfig,
                                                         const std::string& directory,
                                                         const std::string& name = {});

  int port() const { return port_; }          // of the webhook's TLS server; 0 for the operator
  int ops_port() const { return ops_port_; }  // of health and metrics
  pid_t pid() const { return process_->pid(); }
  std::string log() const { return tail_of_file(log_file_, 16U << 10); }
  bool running() { return process_->running(); }
  int stop() { return process_->stop(); }
  void kill();  // SIGKILL
  void send_signal(int signal) { process_->send_signal(signal); }

 private:
  Result<void> wait_until_ready();

  std::unique_ptr<Subprocess> process_;
  std::string subcommand_;
  std::string log_file_;
  std::string port_file_;
  std::string ops_port_file_;
  int port_ = 0;
  int ops_port_ = 0;
};

// The body of GET http://127.0.0.1:PORT/PATH, or nothing when it is not answered with 200.
std::string http_get(int port, const std::string& path);

}  // namespace plimsoll::testing
