// A node whose pods are processes of this machine: a small kubelet, for tests that train for real.
//
//   Result<std::unique_ptr<NodeAgent>> node = NodeAgent::start(*server, {.name = "local-0", .gpus = 4,
//       .labels = {{"nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB"}}});
//   kubectl apply ...                      // the scheduler binds pods to it; they run
//
// It registers the node and keeps its Lease, starts what is bound to it (local_pod.h), writes Running, then
// Succeeded or Failed with exit code and termination message (the log's end where the pod asks for that),
// and ends processes whose pods are deleted: SIGTERM, then SIGKILL after the pod's grace period. Processes
// end with the agent, and the agent with the test (PR_SET_PDEATHSIG). It owns one thread; the server must
// outlive it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "kube/client.h"
#include "kube/reflector.h"
#include "tests/controlplane/api_server.h"

namespace plimsoll::testing {

class NodeAgent {
 public:
  struct Options {
    std::string name = "local-0";
    std::int64_t gpus = 8;
    std::map<std::string, std::string> labels;
    std::map<std::string, std::string> environment;  // of every process, under what its pod sets
  };

  // Errors: those of registering the node.
  static Result<std::unique_ptr<NodeAgent>> start(const ApiServer& server, Options options);
  ~NodeAgent();

  NodeAgent(const NodeAgent&) = delete;
  NodeAgent& operator=(const NodeAgent&) = delete;

 private:
  class Pod;

  NodeAgent(const ApiServer& server, Options options);
  Result<void> register_node();
  void run(const std::stop_token& stop);
  void look();
  void renew_lease();
  std::string port_for(const std::string& address, const std::string& port);

  const ApiServer& server_;
  const Options options_;
  const std::unique_ptr<kube::Client> client_;
  const std::string directory_;
  kube::Reflector reflector_;

  // The thread's only.
  std::map<std::string, std::unique_ptr<Pod>> pods_;  // by uid
  std::map<std::string, std::string> ports_;          // by "address:port" of a job's first pod
  std::chrono::steady_clock::time_point next_renewal_{};

  std::jthread thread_;
};

}  // namespace plimsoll::testing
