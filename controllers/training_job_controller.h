// TrainingJobController runs training jobs: it makes the attempts of each TrainingJob, watches how they end,
// and starts them again with what they lacked (controllers/training_job_pass.h tells how).
//
//   TrainingJobController jobs(client, cluster, models, events, {});
//   jobs.start();
//   ...
//   jobs.stop();                              // waits; what is under way is finished first
//
// Level-triggered: changes of a job, of its Job and of its pods put the job's name into a work queue, from
// which workers take it, never two of them the same; failures come back with back-off. All that must survive
// is in the API server. One thread for each worker and each of the three watches; `start` and `stop` from one
// thread, `ready` from any. What it is given must outlive it.
#pragma once

#include <prometheus/registry.h>

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "controllers/runtime_metrics.h"
#include "controllers/training_job_pass.h"
#include "kube/reflector.h"
#include "kube/work_queue.h"

namespace plimsoll::controllers {

class TrainingJobController {
 public:
  struct Options {
    int workers = 4;
    // Asked before each look at a job: whether this process leads. Null: it is alone.
    std::function<bool()> leads;
    // Likewise, whether the view of the cluster is complete: a job that is sized before would find no GPU,
    // and keep what it asked for. Null: it is.
    std::function<bool()> knows_cluster;
    Bytes decision_memory = estimator::kDecisionMemory;  // of each worker
    const Clock* clock = &system_clock();
    prometheus::Registry* registry = nullptr;  // null: no metrics
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
  // How long no worker has finished a job while one is at work.
  std::chrono::nanoseconds stalled_for() const { return queue_.stalled_for(); }
  // To be called before a scrape.
  void refresh_metrics();

 private:
  struct Metrics;

  kube::Reflector::Options reflect_jobs();
  kube::Reflector::Options reflect_children();
  kube::Reflector::Options reflect_pods();
  void pod_changed(const kube::Reflector::Change& change);
  void remember(const kube::SharedObject& pod);
  std::vector<Json> departed(const std::string& child_key);
  void forget_departed(const std::string& child_key);
  void run(const std::stop_token& stop);
  void handle(const std::string& key, const std::stop_token& stop);

  kube::Client& client_;
  const Options options_;
  std::unique_ptr<Metrics> metrics_;
  Surroundings surroundings_;
  kube::WorkQueue queue_;

  // Pods that have gone and had something to say, by the key of their Job; the oldest go first.
  std::mutex departed_mutex_;
  std::list<std::pair<std::string, kube::SharedObject>> departed_;

  kube::Reflector jobs_;
  kube::Reflector children_;
  kube::Reflector pods_;
  std::vector<std::jthread> workers_;
};

}  // namespace plimsoll::controllers
