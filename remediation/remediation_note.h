// The decision after an attempt, as an annotation of the job. It is written together with the change of the
// spec, so that after a crash the operator does not decide again, and does not lose what the spec cannot
// hold.
//
//   patch(job, with_note(job, remediation, attempt));
//   if (std::optional<Remediation> noted = noted_remediation(job, attempt)) continue_with(*noted);
//
// A manifest from `kubectl get -o yaml` carries the annotation into another job. So the note names the job's
// uid, and the attempt by its number and start; it is ignored for any other job or attempt. A note that is
// not in the form that this module writes is ignored, too, and the decision is made again. Pure; any thread.
#pragma once

#include <optional>

#include "base/json/json.h"
#include "crds/training_job_status.h"
#include "remediation/remediation.h"

namespace plimsoll::remediation {

// {"jobUID", "afterAttempt", "attemptStartTime", "counts", "expandableSegments", "delaySeconds", "reason",
// "message", and "sharedMemoryBytes" where it was given}
inline constexpr const char* kRemediationAnnotation = "plimsoll.dev/remediation";

// The remediation's patch with the note added, for the present state of the job.
Json with_note(const Json& job, const Remediation& remediation, const crds::Attempt& attempt);

// The decision of the job's note, if it is about this attempt. Its patch is empty: it is applied already.
std::optional<Remediation> noted_remediation(const Json& job, const crds::Attempt& attempt);

}  // namespace plimsoll::remediation
