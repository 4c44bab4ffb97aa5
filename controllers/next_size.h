// Where a job goes when it cannot stay: the size after one that was too small, and the GPU model after one
// that was taken away. The pieces of remediate() that ask the provisioner. Pure; any thread.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/json.h"
#include "controllers/remediation.h"

namespace plimsoll::controllers {

struct NextSize {
  bool found = false;
  Json patch{::Json::arrayValue};  // of the TrainingJob
  std::string words;               // which size, or why there is none
};

// Whether each of more trainers would hold less: tables are spread over them, or they share what they hold.
bool more_trainers_take_less(const crds::TrainingJobSpec& spec);

// A size that none of the failed attempts rules out. Where the job can be estimated, it is one that holds it
// by an estimate that the failures have corrected.
NextSize larger_size(const RemediationInputs& inputs);

// Another allowed GPU model with room for the job now, where the present one has none.
NextSize room_elsewhere(const RemediationInputs& inputs);

}  // namespace plimsoll::controllers
