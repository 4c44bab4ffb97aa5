// What was decided after an attempt, as an annotation of the job: it is written together with the change of
// the spec, so that whoever comes next, after a crash in between, neither decides again nor forgets what the
// spec cannot say. Pure; any thread.
#pragma once

#include <optional>

#include "base/json.h"
#include "controllers/remediation.h"

namespace plimsoll::controllers {

// {"afterAttempt", "counts", "expandableSegments", "delaySeconds", "reason", "message"}
inline constexpr const char* kRemediationAnnotation = "plimsoll.dev/remediation";

// The remediation's patch and the note of it, for the job as it is.
Json with_note(const Json& job, const Remediation& remediation, std::int64_t attempt);

// What the job's note says, if it is about this attempt. Its patch is empty: it has been made.
std::optional<Remediation> noted_remediation(const Json& job, std::int64_t attempt);

}  // namespace plimsoll::controllers
