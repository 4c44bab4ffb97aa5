// One pass over one TrainingJob: the planner (controllers/training_job_planner.h) decides step by step what
// to do, and the executor (controllers/training_job_executor.h) does it.
//
//   Result<RequeueAfter> after = reconcile(context, object);   // object: the TrainingJob as the API has it
//
// One call at a time for one job; any number of jobs at once.
#pragma once

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json/json.h"
#include "base/result.h"
#include "controllers/training_job_planner.h"
#include "crds/training_job.h"
#include "crds/training_job_status.h"
#include "estimator/provisioner/cluster_view.h"
#include "estimator/provisioner/model_source.h"
#include "estimator/provisioner/provisioner.h"
#include "kube/client.h"
#include "kube/event_recorder.h"
#include "kube/reflector.h"

namespace plimsoll::controllers {

// An attempt's ends and beginnings, for metrics. Called from any worker.
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  virtual void began(const crds::TrainingJob& job, const crds::Attempt& attempt) = 0;
  virtual void ended(const crds::TrainingJob& job, const crds::Attempt& attempt) = 0;
  virtual void finished(const crds::TrainingJob& job, bool succeeded) = 0;
};

// What a pass works with. Everything must outlive it.
struct PassContext {
  kube::Client* client = nullptr;                        // required
  const estimator::ClusterViewStore* cluster = nullptr;  // required
  estimator::ModelSource* models = nullptr;              // null: jobs that name ConfigMaps run without a plan
  kube::EventRecorder* events = nullptr;                 // null: no events
  JobObserver* observer = nullptr;                       // may be null
  const Clock* clock = &system_clock();
  // From the caches: the child by its key, the pods of an attempt, and deleted pods whose end says why.
  std::function<kube::SharedObject(const std::string& key)> find_job;
  std::function<std::vector<Json>(const std::string& child_key)> find_pods;
  std::function<std::vector<Json>(const std::string& child_key)> departed_pods;
  std::stop_token stop;
  Bytes decision_memory = estimator::kDecisionMemory;
};

// For events about the job.
kube::ObjectReference reference_to(const JsonView& job);

// A job that cannot be read is left alone, with an event. Errors: what the API server said; try again later.
Result<RequeueAfter> reconcile(const PassContext& context, const Json& object);

}  // namespace plimsoll::controllers
