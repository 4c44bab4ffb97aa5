#include "webhook/validate.h"

#include <algorithm>
#include <utility>

#include "base/quantity.h"
#include "crds/pod_fields.h"
#include "crds/shared_memory.h"
#include "webhook/mutate.h"

namespace plimsoll::webhook {
namespace {

Validation allow(const char* reason) {
  Validation validation;
  validation.reason = reason;
  return validation;
}

Validation refuse(int code, const char* reason, std::string message) {
  Validation validation;
  validation.reason = reason;
  validation.answer.allowed = false;
  validation.answer.code = code;
  validation.answer.reason = reason;
  validation.answer.message = std::move(message);
  return validation;
}

Validation refuse(const crds::TrainingJob& job, std::vector<crds::FieldError> wrong) {
  const std::string who = job.name.empty() ? "TrainingJob" : "TrainingJob " + job.name;
  Validation validation = refuse(422, "Invalid", who + " is invalid: " + crds::to_string(wrong, kCauseLimit));
  validation.answer.causes = std::move(wrong);
  return validation;
}

// Of a job as it will run: the mutating webhook has sized it.
std::vector<std::string> warnings_of(const crds::TrainingJob& job) {
  const std::int64_t gpus = std::min(job.spec.trainers.per_node, job.spec.trainers.replicas);
  const crds::SharedMemory given = crds::shared_memory_of(member(job.raw, {"spec", "template", "spec"}));
  const Json& annotations = member(job.raw, {"metadata", "annotations"});
  if (gpus < 2 || given.kind != crds::SharedMemory::Kind::kDefault || crds::is_managed_elsewhere(job) ||
      text_member(annotations, {crds::kProvisioningAnnotation}) == "disabled") {
    return {};
  }
  const Result<Json> decision = parse_json(text_member(annotations, {crds::kDecisionAnnotation}));
  if (decision && !member(*decision, {"swapPlan"}).isNull()) {
    return {};  // one process drives all GPUs of a swap plan, which brings its own /dev/shm
  }
  return {
      "the trainer container has 64 MiB of /dev/shm, which NCCL of " + std::to_string(gpus) +
      " GPUs and DataLoader workers may fill (Bus error): add volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: " +
      format_bytes(crds::usual_shared_memory(gpus)) +
      "}}] and volumeMounts: [{name: shm, mountPath: /dev/shm}]"};
}

}  // namespace

Validation validate(const AdmissionRequest& request) {
  if (!is_training_job(request)) {
    return allow("NotATrainingJob");
  }
  if (request.operation != Operation::kCreate && request.operation != Operation::kUpdate) {
    return allow("NothingToDecide");
  }
  if (!request.object.is_object()) {
    return refuse(400, "BadRequest",
                  std::string("the review of this ") + name_of(request.operation) + " has no object");
  }
  const bool update = request.operation == Operation::kUpdate;
  if (update && member(request.object, {"spec"}) == member(request.old_object, {"spec"})) {
    return allow("Unchanged");
  }
  if (update && !member(request.object, {"metadata", "deletionTimestamp"}).is_null()) {
    return allow("Deleted");
  }
  const Result<crds::TrainingJob> job = crds::decode_training_job(request.object);
  if (!job) {
    return refuse(422, "Invalid", "TrainingJob is invalid: " + job.error().message);
  }
  std::vector<crds::FieldError> wrong = crds::validate(*job);
  if (update) {
    // The stored object may be older than the rules; then only the new object is checked.
    if (const Result<crds::TrainingJob> before = crds::decode_training_job(request.old_object); before) {
      const std::vector<crds::FieldError> forbidden = crds::validate_update(*before, *job);
      wrong.insert(wrong.end(), forbidden.begin(), forbidden.end());
    }
  }
  if (!wrong.empty()) {
    return refuse(*job, std::move(wrong));
  }
  Validation validation = allow("Valid");
  // Whoever changes something else has seen them.
  if (!update || changed(request, {"spec", "template"}) || changed(request, {"spec", "trainers"})) {
    validation.answer.warnings = warnings_of(*job);
  }
  if (!update || changed(request, {"spec", "template"})) {
    std::vector<std::string>& warnings = validation.answer.warnings;
    for (std::string& warning : crds::warnings_of_unknown_fields(
             JsonView(member(job->raw, {"spec", "template"})), "spec.template")) {
      warnings.push_back(std::move(warning));
    }
  }
  return validation;
}

}  // namespace plimsoll::webhook
