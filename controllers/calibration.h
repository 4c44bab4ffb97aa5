// CalibrationController learns from jobs: it adds each ended attempt of a job with a model family once to the
// family's MemoryProfile (learning.h has the arithmetic), which the webhook reads for the next job.
//
//   CalibrationController calibration(client, estimator::GpuCatalog::built_in(), {.registry = &registry});
//   calibration.start();
//   ...
//   calibration.stop();
//
// A missing profile is created, in the job's namespace, with the family's name. Level-triggered: events only
// name jobs, and what is written follows from the job's status and the profile's own samples, with the
// profile's resourceVersion, so that nothing is counted twice, even with several writers. Failures are
// retried with back-off. One thread of its own and one for each watch. Call `start` and `stop` from one
// thread, `ready` from any. `stop` waits. The clients must outlive it.
#pragma once

#include <prometheus/registry.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "controllers/learning.h"
#include "estimator/catalog/gpu_catalog.h"
#include "kube/client.h"
#include "kube/event_recorder.h"
#include "kube/reflector.h"
#include "kube/reflector_group.h"
#include "kube/work_queue.h"
#include "metrics/kubernetes_metrics.h"

namespace plimsoll::controllers {

class CalibrationController {
 public:
  struct Options {
    RetryDelays::Options retries = {};
    // Of a Prometheus server with dcgm-exporter's series; null: none.
    kube::Client* prometheus = nullptr;
    std::chrono::milliseconds prometheus_timeout{5'000};
    kube::EventRecorder* events = nullptr;     // about jobs whose pass throws; null: no events
    prometheus::Registry* registry = nullptr;  // null: no metrics
    const Clock* clock = &system_clock();
    std::vector<std::string> namespaces = {};  // whose jobs are learned from; none: all
  };

  CalibrationController(kube::Client& client, estimator::GpuCatalog catalog, Options options);
  ~CalibrationController();
  CalibrationController(const CalibrationController&) = delete;
  CalibrationController& operator=(const CalibrationController&) = delete;

  void start();
  void stop();

  // True once all jobs that existed at the start have been processed.
  bool ready() const { return ready_; }

 private:
  struct Metrics;

  void run(const std::stop_token& stop);
  std::string request_id_of(const std::string& key) const;  // of the job, for the log
  void report_exception(const std::string& key, const std::string& thrown);
  Result<void> reconcile(const std::string& key, const std::stop_token& stop);
  Result<void> learn_from(LearnedJob job, const std::stop_token& stop);
  Result<Json> make_profile(const LearnedJob& job, const kube::CallOptions& call);
  void read_dcgm_peaks(LearnedJob& job, std::int64_t after, const std::stop_token& stop) const;
  std::vector<estimator::AvailableGpu> gpus() const;
  void count(const LearnedJob& job);
  std::string profile_label(const LearnedJob& job);
  void learn_again(const JsonView& profile);

  kube::Client& client_;
  const estimator::GpuCatalog catalog_;
  const Options options_;
  std::unique_ptr<Metrics> metrics_;
  kube::WorkQueue queue_;
  std::string started_;  // RFC 3339
  // By the job's uid, the last attempt in the metrics. The worker's thread only.
  std::map<std::string, std::int64_t> counted_;
  std::map<std::string, std::set<std::string>> counted_profiles_;  // by namespace: the values of a label
  std::atomic<bool> ready_ = false;

  kube::ReflectorGroup jobs_;
  kube::ReflectorGroup profiles_;
  kube::Reflector gpu_models_;
  std::jthread worker_;
};

}  // namespace plimsoll::controllers
