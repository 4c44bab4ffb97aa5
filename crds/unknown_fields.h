// The fields of an object that its schema does not have, which the API server reports under strict field validation
// (kubectl's default) and drops otherwise. For input that a person wrote: objects of a newer API server may have fields
// that this program does not know. Pure; any thread.
#pragma once

#include <vector>

#include "base/json/view.h"
#include "crds/training_job.h"

namespace plimsoll::crds {

// Of a TrainingJob, GPUModel or MemoryProfile, by `kind`; at most kMaxFieldErrors of them. Objects of other kinds, the
// status, and what the schema leaves open (spec.template: pod_fields.h) have none. Values of a wrong type are the decoders' errors.
std::vector<FieldError> unknown_fields(const JsonView& object);

// Errors: kInvalid naming them.
Result<void> refuse_unknown_fields(const JsonView& object);

}  // namespace plimsoll::crds
