// Chooses the next size of a job: a larger one after a size that was too small, or another GPU model after a
// preemption. The part of remediate() that calls the provisioner. Pure; any thread.
#pragma once

#include <string>

#include "base/json/json.h"
#include "remediation/remediation.h"

namespace plimsoll::remediation {

struct NextSize {
  bool found = false;
  Json patch{::Json::arrayValue};  // of the TrainingJob
  std::string text;                // which size, or why there is none
};

// A size that no failed attempt rules out (estimator/provisioner/size_exclusion.h). Where the job can be estimated, the
// size fits by an estimate that the failures have corrected.
NextSize larger_size(const RemediationInputs& inputs);

// Another allowed GPU model with enough free GPUs, where the present model has too few.
NextSize size_on_other_model(const RemediationInputs& inputs);

}  // namespace plimsoll::remediation
