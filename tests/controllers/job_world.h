// A world for one training job: the embedded API server with Plimsoll's CRDs, GPUs in the view of the
// cluster, and hands to play the Job controller's part. What is tested calls reconcile() itself, one look at
// a time, so that everything happens in order and can be cut anywhere.
//
//   JobWorld world;
//   world.create(job_yaml("ads"));
//   world.settle("ads");                                   // looks until nothing more is to do
//   world.fail_pods("ads-0", kOutOfMemory);
//   world.settle("ads");
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "controllers/training_job_executor.h"
#include "tests/controlplane/fake_api_server.h"

namespace plimsoll::testing {

inline constexpr const char* kOutOfMemory =
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total "
    "capacity "
    "of 79.15 GiB of which 9.00 GiB is free. Including non-PyTorch memory, this process has 70.15 GiB memory "
    "in use. Of the allocated memory 68.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch "
    "but unallocated.";

// A client that hands everything on until its process "dies": from the given write on, nothing gets through;
// with `loses_answer` that write itself does, and only its answer is lost.
class DyingClient : public kube::Client {
 public:
  DyingClient(kube::Client& to, int writes, bool loses_answer)
      : to_(to), writes_(writes), loses_answer_(loses_answer) {}

  bool died() const { return died_; }

  Result<Json> get(const kube::Resource& resource, const std::string& ns, const std::string& name,
                   const kube::CallOptions& options) override;
  Result<Json> list(const kube::Resource& resource, const std::string& ns, const kube::ListOptions& what,
                    const kube::CallOptions& options) override;
  Result<Json> create(const kube::Resource& resource, const std::string& ns, const Json& object,
                      const kube::CallOptions& options) override;
  Result<Json> update(const kube::Resource& resource, const std::string& ns, const Json& object,
                      const std::string& subresource, const kube::CallOptions& options) override;
  Result<Json> patch(const kube::Resource& resource, const std::string& ns, const std::string& name,
                     kube::PatchType type, const Json& patch, const std::string& subresource,
                     const kube::CallOptions& options) override;
  Result<void> remove(const kube::Resource& resource, const std::string& ns, const std::string& name,
                      const kube::CallOptions& options) override;
  Result<void> watch(const kube::Resource& resource, const std::string& ns, const kube::WatchOptions& options,
                     const std::function<void(const kube::WatchEvent&)>& on_event,
                     std::stop_token stop) override;
  Result<std::string> get_raw(const std::string& path, const kube::CallOptions& options) override;

 private:
  template <class T, class Call>
  Result<T> write(Call call);

  kube::Client& to_;
  int writes_;
  const bool loses_answer_;
  bool died_ = false;
};

class JobWorld {
 public:
  JobWorld();

  kube::Client& client() { return *client_; }
  estimator::ClusterViewStore& cluster() { return cluster_; }

  // GPUModel objects as (name, memory in MiB, total, free).
  struct Gpus {
    std::string model;
    int total = 0;
    int free = 0;
  };
  void set_gpus(const std::vector<Gpus>& gpus);

  void create(const std::string& yaml);
  void label_namespace(const std::string& mode);  // with plimsoll.dev/mode
  Json job(const std::string& name);
  crds::JobStatus status(const std::string& name) { return crds::decode_status(job(name)); }
  Json child(const std::string& name);  // batch/v1 Job; null: not there
  void patch(const std::string& name, const std::string& merge_patch);
  void erase_child(const std::string& name);
  void erase(const std::string& name);  // the TrainingJob

  // One look at the job as it is.
  Result<controllers::RequeueAfter> look(const std::string& name, kube::Client* through = nullptr);
  // Looks until a look changes nothing; passes over back-offs.
  void settle(const std::string& name);

  // What the Job controller and kubelets would say.
  void run_pods(const std::string& child);
  void complete(const std::string& child);
  void fail_pods(const std::string& child, const std::string& termination_message, int exit_code = 1);
  void preempt(const std::string& child, bool pod_is_gone);
  void fail_child(const std::string& child, const std::string& reason, const std::string& message);
  // A pod of the child that runs on node "gpu-7", and that takes its time: deleted, it terminates until
  // end_pods(), which ends all such pods that were deleted and returns how many there were.
  void start_slow_pod(const std::string& child);
  int end_pods();
  // By the uid of their Job, the pods that have not come to a terminal phase.
  std::map<std::string, int> live_pods();
  std::vector<Json> children();  // all batch/v1 Jobs

  void pass(std::chrono::seconds time) { clock_.now += time; }
  std::vector<Json> departed;  // pods that the cache would remember
  crds::ClusterPolicy policy;
  const remediation::Patterns* patterns = &remediation::Patterns::built_in();  // of failures
  const std::map<std::string, int>& children_made() const { return made_; }    // by name: how often

 private:
  struct ManualClock final : Clock {
    WallTime now = std::chrono::system_clock::from_time_t(1'795'249'800);
    WallTime wall_now() const override { return now; }
    SteadyTime steady_now() const override { return std::chrono::steady_clock::now(); }
  };

  Json put_pod(const std::string& child, const Json& status);
  void set_status(const kube::Resource& resource, Json object, const Json& status);

  std::unique_ptr<FakeApiServer> server_;
  std::unique_ptr<kube::Client> client_;
  estimator::ClusterViewStore cluster_;
  ManualClock clock_;
  std::map<std::string, std::string> uids_;
  std::map<std::string, int> made_;
};

// A recommender of family "ads" that asks for `replicas` A100-80GB; `more` are lines of YAML below spec.
std::string job_yaml(const std::string& name, int replicas = 4, const std::string& more = {});

}  // namespace plimsoll::testing
