// The objects of an attempt in the cluster: a ConfigMap with its plan, a headless Service whose names
// trainers use to find each other, and a batch/v1 Indexed Job with one pod for each node.
//
//   Result<AttemptChildren> children = make_children(job, attempt, {.plan = plan.text});
//   if (children) client.create(kConfigMaps, job.namespace_name, children->plan);
//
// All are owned by the TrainingJob, and deleted with it. Names follow from the job's name and the attempt's
// number alone, so that nothing is created twice. The Job never retries by itself (backoffLimit 0), because
// each attempt may need another size. A disruption of a pod fails it at once, by a rule that names the cause
// even after the pod is gone. Pure functions; any thread.
#pragma once

#include <string>

#include "base/json/view.h"
#include "crds/training_job.h"
#include "crds/training_job_status.h"
#include "kube/event_correlator.h"
#include "kube/resource.h"

namespace plimsoll::controllers {

inline const kube::Resource kConfigMaps{"", "v1", "configmaps", true};
inline const kube::Resource kServices{"", "v1", "services", true};
inline const kube::Resource kPods{"", "v1", "pods", true};
inline const kube::Resource kJobs{"batch", "v1", "jobs", true};
inline const kube::Resource kNamespaces{"", "v1", "namespaces", false};
inline const kube::Resource kTrainingJobs{crds::kGroup, crds::kVersion, "trainingjobs", true};

// On all children and their pods. A label holds 63 bytes and a job's name may be longer: then it is the
// shortened one that the children's own names begin with.
inline constexpr const char* kJobNameLabel = "plimsoll.dev/job-name";
inline constexpr const char* kAttemptLabel = "plimsoll.dev/attempt";         // and annotation
inline constexpr const char* kTrainersAnnotation = "plimsoll.dev/trainers";  // of the pods: of all of them
inline constexpr const char* kPlanDirectory = "/etc/plimsoll";
// Where plimsoll.harmony finds the plan of a job that trains through host memory.
inline constexpr const char* kSwapPlanVariable = "PLIMSOLL_SWAP_PLAN";

// "JOB-ATTEMPT". A long JOB is cut, and a hash makes it unique, so that pods' host names have at most 63
// bytes.
std::string child_name(const std::string& job, std::int64_t attempt);

// Selects the pods of an attempt, and of all attempts.
std::string pods_selector(const std::string& job, std::int64_t attempt);
std::string pods_selector(const std::string& job);

// The controller reference to the job, for metadata.ownerReferences.
Json owner_reference(const Json& job);

// For events about the job.
kube::ObjectReference reference_to(const JsonView& job);

struct AttemptChildren {
  Json plan;  // ConfigMap
  Json service;
  Json job;
};

// What an attempt's pods get besides the template.
struct AttemptInputs {
  std::string plan;       // plan.json; it is compressed when it would not fit a ConfigMap otherwise
  std::string swap_plan;  // swap.json; empty: the job trains in GPU memory, one process a GPU
  Bytes host_memory;      // that the trainer's container asks for at least; 0: as the template says
  Bytes shared_memory;    // of its /dev/shm at least (crds/shared_memory.h); 0: as the template says
};

// Errors: kTooLarge when the plans do not fit a ConfigMap; kInvalid for a pod template that cannot be changed, because
// a field of it is of another type than in core/v1.
Result<AttemptChildren> make_children(const crds::TrainingJob& job, const crds::Attempt& attempt,
                                      const AttemptInputs& inputs);

}  // namespace plimsoll::controllers
