// patch_for() and to_json(): a decision as the changes it makes, and as the contract of docs/cli.md. Pure;
// any thread.
#pragma once

#include "base/json/json.h"
#include "crds/training_job.h"
#include "estimator/provisioner/provisioner.h"

namespace plimsoll::estimator::inline provisioner {

// JSONPatch (RFC 6902, add and replace only) that writes a decision into the job: spec.trainers, the
// template's node selector or affinity, GPU limits of the trainer container, annotations that say what was
// asked and why it changed. Idempotent: a job that already says it all gets an empty array.
Json patch_for(const crds::TrainingJob& job, const Provision& provision);

// The contract of docs/cli.md: {"decision", "requested", "alternatives", "patch"}.
Json to_json(const crds::TrainingJob& job, const Provision& provision);

}  // namespace plimsoll::estimator::provisioner
