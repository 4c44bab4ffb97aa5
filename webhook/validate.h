// validate(): the answer of the validating webhook to one request: a TrainingJob that cannot be run as
// written is rejected with 422 and a list of all invalid fields.
//
// The CRD's schema and rules already reject most invalid jobs; this adds what they cannot express (relations
// between fields, total sizes) and the same answer where the schema is older than the webhook. An update that
// keeps the spec, or only completes a deletion, is never rejected, so that a stricter version does not block
// existing objects. A job that several GPUs of a pod may end with a full /dev/shm is allowed with a warning: here, because this
// webhook sees the size that the mutating one has decided. Pure; any thread.
#pragma once

#include <string>

#include "webhook/admission_review.h"

namespace plimsoll::webhook {

struct Validation {
  AdmissionAnswer answer;
  std::string reason;  // CamelCase, for metrics: "Valid", "Invalid", ...
};

Validation validate(const AdmissionRequest& request);

}  // namespace plimsoll::webhook
