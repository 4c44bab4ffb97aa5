// An API server that a test may talk to: the real control plane (etcd, kube-apiserver, controller-manager,
// scheduler, kwok as processes) or the embedded fake one. The same test bodies run on both; where the two
// differ, the fake is wrong.
//
//   std::unique_ptr<ApiServer> server = start_api_server(ApiServerKind::kReal);
//   if (server == nullptr) GTEST_SKIP();  // it cannot be had here, and has said why
//   run_kubectl(*server, {"apply", "-f", file});
//
// Everything is torn down by the destructor; processes die with the test process however it ends
// (PR_SET_PDEATHSIG and a process group of their own). Owned by the test; methods from one thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "kube/client.h"
#include "tests/fake_apiserver/unevaluated_rule.h"

namespace plimsoll::testing {

enum class ApiServerKind { kFake, kReal };

class ApiServer {
 public:
  virtual ~ApiServer() = default;
  virtual ApiServerKind kind() const = 0;
  virtual std::string kubeconfig() const = 0;  // path of a file with admin rights
  virtual std::string directory() const = 0;   // scratch folder of this server, removed with it
  virtual std::unique_ptr<kube::Client> make_client() const = 0;
  // Kills the kube-apiserver with SIGKILL and starts it again after the outage, on the same port and store;
  // returns when it is ready. Call it from the thread that started the server. Errors: kUnsupported of the
  // fake.
  virtual Result<void> restart(std::chrono::milliseconds outage) = 0;
  // From the next restart on the server shows a certificate of a new CA, whose PEM this returns and which
  // kubeconfig() trusts from now on. Errors: kUnsupported of the fake.
  virtual Result<std::string> renew_certificate() = 0;
  // The CEL rules of the stored definitions that this server does not evaluate; none of the real one.
  virtual fake::UnevaluatedRules unevaluated_rules() const = 0;
};

struct ApiServerOptions {
  bool controller_manager = false;  // real only; the fake runs no controllers
  bool scheduler = false;
  bool kwok = false;
  bool audit = false;  // real only: who did what, one JSON object a line, in audit.log of the server's folder
};

// Null when this kind is not to be had here; the reason is then in `why` and on standard error.
std::unique_ptr<ApiServer> start_api_server(ApiServerKind kind, const ApiServerOptions& options = {},
                                            std::string* why = nullptr);

struct CommandResult {
  int exit_code = -1;  // 128 + signal when it was killed; -1 when it could not be started
  std::string output;
  std::string errors;
};

// Runs a program to its end or its deadline (then it is killed and exit_code is 124).
CommandResult run_command(const std::vector<std::string>& arguments, const std::string& input = {},
                          std::chrono::seconds deadline = std::chrono::seconds(60));

// kubectl on this server: $PLIMSOLL_KUBECTL, else PATH's; for a real one the kubectl of its version comes
// first.
CommandResult run_kubectl(const ApiServer& server, std::vector<std::string> arguments,
                          const std::string& input = {});

}  // namespace plimsoll::testing
