// validate(): the answer of the validating webhook to one request: a TrainingJob that cannot be run as
// written is refused with 422 and every field that is wrong.
//
// The CRD's schema and its rules refuse most of it already; this adds what they cannot say (how fields fit
// together, total sizes) and the same answer where the schema is older than the webhook. An update that
// leaves the spec as it was, or only lets a deleted object go, is never refused, so that a stricter version
// locks nobody out of what exists. Pure; any thread.
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
