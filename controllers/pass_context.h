// PassContext: what a pass over one TrainingJob works with. A plain value; what it points to must outlive the
// pass.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json/json.h"
#include "crds/cluster_policy.h"
#include "crds/training_job.h"
#include "crds/training_job_status.h"
#include "estimator/provisioner/cluster_view.h"
#include "estimator/provisioner/model_source.h"
#include "estimator/provisioner/provisioner.h"
#include "kube/client.h"
#include "kube/event_recorder.h"
#include "kube/reflector.h"
#include "remediation/patterns.h"

namespace plimsoll::controllers {

// Beginnings and ends of attempts, for metrics. Called from any worker.
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  virtual void began(const crds::TrainingJob& job, const crds::Attempt& attempt) = 0;
  virtual void ended(const crds::TrainingJob& job, const crds::Attempt& attempt) = 0;
  virtual void finished(const crds::TrainingJob& job, const crds::JobStatus& status, bool succeeded) = 0;
};

struct PassContext {
  kube::Client* client = nullptr;                        // required
  const estimator::ClusterViewStore* cluster = nullptr;  // required
  estimator::ModelSource* models = nullptr;  // null: jobs that refer to ConfigMaps run without a plan
  kube::EventRecorder* events = nullptr;     // null: no events
  JobObserver* observer = nullptr;           // may be null
  const Clock* clock = &system_clock();
  // From the caches: the child by its key, the pods of an attempt, and deleted pods whose end shows the
  // cause.
  std::function<kube::SharedObject(const std::string& key)> find_job;
  std::function<std::vector<Json>(const std::string& child_key)> find_pods;
  std::function<std::vector<Json>(const std::string& child_key)> departed_pods;
  std::stop_token stop;
  Bytes decision_memory = estimator::kDecisionMemory;
  crds::ClusterPolicy policy = {};
  const remediation::Patterns* patterns = &remediation::Patterns::built_in();  // of failures
};

}  // namespace plimsoll::controllers
