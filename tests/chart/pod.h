// A pod of a Deployment as this machine can run it: the container's command and environment, in a root file system of its own made
// of the image, as the pod's user, with the files of its service account where the kubelet puts them.
//
//   Result<std::unique_ptr<Pod>> pod = Pod::start(*server, deployment, "webhook-0");
//   (*pod)->port();
//   (*pod)->terminate();
//   EXPECT_EQ((*pod)->wait_for_exit(), 0);
//
// It differs from a pod in a cluster: it shares the machine's network, so every option that names a port gets 0 and tells the port
// taken in a file; no cgroup limits it; its root is not read-only, but a process that writes anywhere but in /run/test fails the test.
// One thread.
#pragma once

#include <signal.h>

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/json/json.h"
#include "base/result.h"
#include "tests/controlplane/api_server.h"
#include "tests/controlplane/subprocess.h"

namespace plimsoll::testing {

class Pod {
 public:
  // Waits until the container's readiness probe passes. `name` tells the pods of one server apart. Errors: with what the process
  // said last.
  static Result<std::unique_ptr<Pod>> start(const ApiServer& server, const Json& deployment,
                                            const std::string& name);
  // Ends the process, and fails the test if it has written to its root file system.
  ~Pod();

  const std::string& name() const { return name_; }
  int port() const { return port_; }  // of the webhook's TLS server; 0 for the operator
  std::string log() const { return tail_of_file(folder_ + ".log", 16U << 10); }
  bool running() { return process_->running(); }
  // SIGTERM. Once: the process takes a second one for impatience.
  void terminate() { process_->send_signal(SIGTERM); }
  // The exit code of a terminated pod, or nothing when its grace period was not enough.
  std::optional<int> wait_for_exit() { return process_->wait_for_exit(grace_); }

 private:
  Pod() = default;

  std::string name_;
  std::string folder_;
  std::set<std::string> before_;  // what the root file system held when the process started
  std::unique_ptr<Subprocess> process_;
  std::chrono::seconds grace_{0};
  int port_ = 0;
};

}  // namespace plimsoll::testing
