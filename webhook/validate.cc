#include "webhook/validate.h"

#include <utility>

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
  return wrong.empty() ? allow("Valid") : refuse(*job, std::move(wrong));
}

}  // namespace plimsoll::webhook
