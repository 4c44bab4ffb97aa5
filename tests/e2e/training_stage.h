// The stage of jobs that run: a real control plane with its scheduler and Job controller, pretended GPU nodes
// whose pods end as their annotations say (tests/controlplane/stages), Plimsoll's operator and webhook.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kube/client.h"
#include "kube/reflector.h"
#include "tests/e2e/main_job.h"

namespace plimsoll::testing {

// A TrainingJob of tables that take a few A100-80GB, and what its pods do.
struct TrainingJobManifest {
  std::string name = "ads";
  std::string family{};
  std::int64_t replicas = 16;  // requested
  std::int64_t max_trainers = 64;
  std::map<std::string, std::string> annotations{};  // of the pods: test.plimsoll.dev/...
  std::string more{};                                // lines of YAML, fields of spec
  int grace_seconds = 30;                            // that pods may take to terminate

  std::string text() const;
};

// PyTorch's own words on an A100 of 80 GB whose step needed 84.5 GiB.
extern const char* const kOutOfMemoryText;

class TrainingTest : public MainJobTest {
 protected:
  using Condition = std::function<bool(const Json& job)>;

  void SetUp() override;
  ApiServerOptions server_options() const override;

  // A pretended node of A100-80GB.
  void add_node(const std::string& name, int gpus = 8);
  // Waits until the operator has counted so many A100-80GB, so that jobs can be sized.
  void wait_for_gpus(int count);

  // The job once it meets the condition; what it is then, or when patience ends.
  Json wait_for(const std::string& name, const Condition& condition,
                std::chrono::seconds patience = std::chrono::seconds(90));
  Json wait_for_end(const std::string& name, std::chrono::seconds patience = std::chrono::seconds(90));
  Json live(const std::string& name);  // null when there is none
  void set_suspended(const std::string& name, bool suspended);
  std::vector<Json> pods_of(const std::string& child);  // a batch/v1 Job by its name
  void evict(const std::string& pod);
  // As their kubelets would: the pods of the Job that were deleted end now. Returns how many.
  int end_terminating_pods(const std::string& child);
  // All that may say why a job is not where it should be.
  std::string story(const std::string& name);

  std::unique_ptr<kube::Client> client_;
};

bool is_true(const Json& job, const std::string& condition);
// The reason and message of a condition: "OOMDetected: ...".
std::string why(const Json& job, const std::string& condition);
const Json& attempts_of(const Json& job);
std::vector<std::string> outcomes_of(const Json& job);

// Whether pods of two attempts of one job ever ran at once while it watched.
class PodWatch {
 public:
  explicit PodWatch(std::unique_ptr<kube::Client> client);
  ~PodWatch() { reflector_.stop(); }

  std::vector<std::string> overlaps() const;  // for people; empty is good

 private:
  void seen(Json pod, bool removed);

  mutable std::mutex mutex_;
  // By the job's label: the pods that have not ended, with the uids of their Jobs.
  std::map<std::string, std::map<std::string, std::string>> live_;
  std::vector<std::string> overlaps_;
  const std::unique_ptr<kube::Client> client_;
  kube::Reflector reflector_;
};

// Each Job that there ever was while it watched, so that what was made twice is known, however short it
// lived.
class JobWatch {
 public:
  explicit JobWatch(std::unique_ptr<kube::Client> client);
  ~JobWatch() { reflector_.stop(); }

  // By the Job's name and its owner's uid: the uids that it has had.
  std::map<std::string, std::vector<std::string>> made() const;
  // Those of more than one uid, for a message.
  std::vector<std::string> made_twice() const;

 private:
  void seen(const Json& job);

  mutable std::mutex mutex_;
  std::map<std::string, std::vector<std::string>> made_;
  const std::unique_ptr<kube::Client> client_;
  kube::Reflector reflector_;
};

}  // namespace plimsoll::testing
