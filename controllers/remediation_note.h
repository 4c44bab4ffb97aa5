// What was decided after an attempt, as an annotation of the job: it is written together with the change of
// the spec, so that whoever comes next, after a crash in between, neither decides again nor forgets what the
// spec cannot say.
//
// A manifest from `kubectl get -o yaml` carries the annotation into another job. So the note names the job's
// uid, and the attempt by its number and start; about any other job or attempt it says nothing. A note that
// is not as this module writes it is as good as none: then the decision is made anew. Pure; any thread.
#pragma once

#include <optional>

#include "base/json.h"
#include "controllers/remediation.h"
#include "crds/training_job_status.h"

namespace plimsoll::controllers {

// {"jobUID", "afterAttempt", "attemptStartTime", "counts", "expandableSegments", "delaySeconds", "reason",
// "message"}
inline constexpr const char* kRemediationAnnotation = "plimsoll.dev/remediation";

// The remediation's patch and the note of it, for the job as it is.
Json with_note(const Json& job, const Remediation& remediation, const crds::Attempt& attempt);

// What the job's note says, if it is about this attempt. Its patch is empty: it has been made.
std::optional<Remediation> noted_remediation(const Json& job, const crds::Attempt& attempt);

}  // namespace plimsoll::controllers
