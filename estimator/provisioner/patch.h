// patch_for() and to_json(): a decision as a JSONPatch, and as the JSON of docs/cli.md. Pure; any thread.
#pragma once

#include "base/json/json.h"
#include "crds/training_job.h"
#include "estimator/provisioner/provisioner.h"

namespace plimsoll::estimator::inline provisioner {

// JSONPatch (RFC 6902, add and replace only) that writes a decision into the job: spec.trainers, the
// template's node selector or affinity, GPU limits of the trainer container, the mode where the job names none, annotations that
// record the original request and the reason. Idempotent: a job that has all of it gets an empty array.
Json patch_for(const crds::TrainingJob& job, const Provision& provision);

// As docs/cli.md specifies: {"decision", "requested", "alternatives", "patch"}.
Json to_json(const crds::TrainingJob& job, const Provision& provision);

}  // namespace plimsoll::estimator::provisioner
