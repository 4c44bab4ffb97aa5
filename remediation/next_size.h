// Chooses the next size of a job: a larger one after a size that was too small, or another GPU model after a
// preemption. The part of remediate() that calls the provisioner.
//
//   Result<NextSize> next = larger_size({.job = &job, .gpus = &gpus, .attempts = &status.attempts});
//   if (next) patch(job, next->patch);
//
// Pure; any thread.
#pragma once

#include <string>

#include "base/json/json.h"
#include "base/result.h"
#include "remediation/remediation.h"

namespace plimsoll::remediation {

struct NextSize {
  Json patch;        // of the TrainingJob
  std::string text;  // which size
};

// A size that no failed attempt rules out (estimator/provisioner/size_exclusion.h). Where the job can be
// estimated, the size fits by an estimate that the failures have corrected. Errors: kUnfittable, with the
// reason, when there is no such size. With provisioning.placement HBMOrSwap, training through host memory is the last resort.
Result<NextSize> larger_size(const RemediationInputs& inputs);

// Another allowed GPU model with enough free GPUs, where the present model has too few. Errors: as above.
Result<NextSize> size_on_other_model(const RemediationInputs& inputs);

}  // namespace plimsoll::remediation
