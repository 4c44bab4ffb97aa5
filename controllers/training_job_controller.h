// TrainingJobController runs training jobs: it creates the attempts of each TrainingJob, observes how they
// end, and restarts them on a size that avoids the failure (controllers/training_job_executor.h).
//
//   TrainingJobController jobs(client, cluster, models, events, {});
//   jobs.start();
//   ...
//   jobs.stop();                              // waits until passes in progress have ended
//
// Level-triggered: changes of a job, of its Job and of its pods put the job's key into a work queue, which
// gives a key to one worker at a time; failures are retried with back-off. All state that must survive is in
// the API server. One thread for each worker and each of the three watches. Call `start` and `stop` from one
// thread, `ready` from any. The constructor's arguments must outlive it.
#pragma once

#include <prometheus/registry.h>

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "controllers/departed_pods.h"
#include "controllers/training_job_executor.h"
#include "kube/reflector.h"
#include "kube/reflector_group.h"
#include "kube/work_queue.h"
#include "metrics/kubernetes_metrics.h"

namespace plimsoll::controllers {

class TrainingJobController {
 public:
  struct Options {
    int workers = 4;
    // Called before each pass: whether this process leads. Null: it is the only one.
    std::function<bool()> leads;
    // Called before each pass: whether the view of the cluster is complete. A job that is sized earlier would
    // find no GPU, and keep its requested size. Null: it is complete.
    std::function<bool()> cluster_is_known;
    Bytes decision_memory = estimator::kDecisionMemory;  // of each worker
    crds::ClusterPolicy policy = {};
    std::vector<std::string> namespaces = {};        // whose jobs are looked after; none: all
    std::set<std::string> excluded_namespaces = {};  // whose jobs are left alone
    // By which failures are recognised. They outlive the controller.
    const remediation::Patterns* patterns = &remediation::Patterns::built_in();
    const Clock* clock = &system_clock();
    prometheus::Registry* registry = nullptr;  // null: no metrics
    // One pass; tests replace it.
    std::function<Result<RequeueAfter>(const PassContext&, const Json& object)> reconcile =
        controllers::reconcile;
  };

  TrainingJobController(kube::Client& client, const estimator::ClusterViewStore& cluster,
                        estimator::ModelSource* models, kube::EventRecorder* events, Options options);
  ~TrainingJobController();
  TrainingJobController(const TrainingJobController&) = delete;
  TrainingJobController& operator=(const TrainingJobController&) = delete;

  void start();
  void stop();

  // True once the caches have their first lists.
  bool ready() const;
  // For how long workers have been busy without finishing a job.
  std::chrono::nanoseconds stalled_for() const { return queue_.stalled_for(); }
  // To be called before a scrape.
  void refresh_metrics();

 private:
  struct Metrics;

  void child_changed(const kube::Reflector::Change& change);
  void pod_changed(const kube::Reflector::Change& change);
  void run(const std::stop_token& stop);
  Result<RequeueAfter> reconcile(const kube::SharedObject& object, const std::stop_token& stop);
  void handle(const std::string& key, const std::stop_token& stop);

  kube::Client& client_;
  const Options options_;
  std::unique_ptr<Metrics> metrics_;
  PassContext context_;
  kube::WorkQueue queue_;

  DepartedPods departed_;

  kube::ReflectorGroup jobs_;
  kube::ReflectorGroup children_;
  kube::ReflectorGroup pods_;
  std::vector<std::jthread> workers_;
};

}  // namespace plimsoll::controllers
