// Records how an attempt ended in the job's status: the outcome, the evidence, and the measured memory.
//
//   record_end(attempt, job, pods, now);        // job: the batch/v1 Job as it ended
//
// Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/json/json.h"
#include "crds/training_job_status.h"
#include "remediation/patterns.h"

namespace plimsoll::remediation {

enum class JobEnd { kNone, kComplete, kFailed };

// What a batch/v1 Job's conditions say.
JobEnd end_of(const Json& job);

// The scheduler's reason why a pod is not placed; empty when all are.
std::string unschedulable(const std::vector<Json>& pods);

// `pods`: all known pods of the attempt, deleted ones included. `now` as in metav1.Time.
void record_end(crds::Attempt& attempt, const Json& job, const std::vector<Json>& pods,
                const std::string& now, const Patterns& patterns = Patterns::built_in());

// The same for an attempt whose end the Job does not show.
void record_end(crds::Attempt& attempt, crds::Outcome outcome, const std::string& message,
                const std::string& now);

}  // namespace plimsoll::remediation
