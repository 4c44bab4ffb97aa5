// Sizes a workload of another kind as a TrainingJob: WorkloadSizing makes the TrainingJob that describes it, on which provision()
// decides, and writes the decision into the workload as a JSON patch.
//
//   Result<WorkloadSizing> sizing = WorkloadSizing::of(*kind, object, references, namespace_name, description, crds::ProvisioningMode::kAuto);
//   estimator::Provision decision = estimator::provision({.job = &sizing->job(), .gpus = &gpus});
//   Result<Json> patch = sizing->patch_for(decision);
//
// The policy AvoidOOM keeps the number of GPUs unless the job would run out of memory; FewestGPUs gives the fewest that hold it. The number
// also stays where the kind cannot have another one, or where an argument repeats it in a way that is not certain
// (arguments.h): why_fixed() says so, and a better GPU model may still be given. Pure; one thread; looks into `object` and
// `references`, which must outlive it.
#pragma once

#include <string>
#include <vector>

#include "base/json/json.h"
#include "base/json/view.h"
#include "base/result.h"
#include "crds/training_job.h"
#include "estimator/provisioner/provisioner.h"
#include "workloads/arguments.h"
#include "workloads/description.h"
#include "workloads/workload.h"

namespace plimsoll::workloads {

class WorkloadSizing {
 public:
  // Errors: those of read_workload(), and of decoding and checking what the description says; kInvalid for an unknown policy.
  static Result<WorkloadSizing> of(const Kind& kind, const JsonView& object, const References& references,
                                   const std::string& namespace_name, const Description& description,
                                   crds::ProvisioningMode mode);

  // To resolve its model's tables (resolve_model) and to decide.
  crds::TrainingJob& job() { return job_; }
  const crds::TrainingJob& job() const { return job_; }
  // Empty: the number of pods may change.
  const std::string& why_fixed() const { return why_fixed_; }

  // JSON patch (RFC 6902, add and replace only); empty where nothing is to change. With mode Off it writes annotations alone.
  // A workload that has all of it gets an empty patch. Errors: kUnsupported where the decision needs a number of pods that the kind cannot have.
  Result<Json> patch_for(const estimator::Provision& provision) const;

 private:
  WorkloadSizing(Workload workload, crds::TrainingJob job)
      : workload_(std::move(workload)), job_(std::move(job)) {}

  Result<JobSize> size_of(const estimator::Decision& decision) const;
  void write_counts(const JobSize& next, Json& patch) const;
  // The patch of a group's template; what it says of the annotations goes to `of_object`.
  Json template_patch(std::size_t index, const estimator::Provision& provision, const JobSize* next,
                      Json& of_object) const;

  Workload workload_;
  crds::TrainingJob job_;               // with the template of the first group
  std::vector<SizeMentions> mentions_;  // of each group's container
  std::string why_fixed_;
};

}  // namespace plimsoll::workloads
