// One look at one TrainingJob: what its status and its children say, and the next thing to do about it.
//
//   Result<Next> next = look_after(surroundings, object);     // object: the TrainingJob as the API has it
//
// A job goes through attempts. Each is first written into the status, then made (plan, Service, Job), then
// watched, and its end is written into the status with the evidence before anything follows from it; what
// follows, a change of the trainers, is written into the spec together with an annotation that says after
// which attempt; and only then is the next attempt written into the status. So whoever looks next, after a
// crash at any point, finds out from the objects alone what was done last, and names that follow from the
// attempt's number keep it from being done twice. Writes carry the resourceVersion that they rest on.
//
// One call at a time for one job; any number of jobs at once.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"
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

struct Surroundings {
  kube::Client* client = nullptr;                        // required
  const estimator::ClusterViewStore* cluster = nullptr;  // required
  estimator::ModelSource* models = nullptr;              // null: jobs that name ConfigMaps run without a plan
  kube::EventRecorder* events = nullptr;                 // null: nobody is told
  JobObserver* observer = nullptr;                       // may be null
  const Clock* clock = &system_clock();
  // From the caches: the child by its key, the pods of an attempt, and those that have gone but had
  // something to say.
  std::function<kube::SharedObject(const std::string& key)> find_job;
  std::function<std::vector<Json>(const std::string& child_key)> find_pods;
  std::function<std::vector<Json>(const std::string& child_key)> departed_pods;
  std::stop_token stop;
  Bytes decision_memory = estimator::kDecisionMemory;
};

// When to look again even if nothing changes; empty: only then.
using Next = std::optional<std::chrono::milliseconds>;

// For events about the job.
kube::ObjectReference reference_to(const JsonView& job);

// A job that cannot be read is left alone, with an event. Errors: what the API server said; look again later.
Result<Next> look_after(const Surroundings& surroundings, const Json& object);

}  // namespace plimsoll::controllers
