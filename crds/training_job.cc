#include "crds/training_job.h"

#include "crds/decoder.h"
#include "crds/object_header.h"
#include "crds/training_job_fields.h"

namespace plimsoll::crds {
namespace {

// Everything but `raw`.
Result<TrainingJob> decode_fields(const Json& object) {
  FieldErrors errors;
  TrainingJob job;
  ObjectHeader header = decode_header(object, "TrainingJob", errors);
  job.name = std::move(header.name);
  job.namespace_name = std::move(header.namespace_name);
  const Json& spec = member(object, {"spec"});
  const FieldPath path("spec");
  if (spec.isObject()) {
    Decoder decoder(spec, path, errors);
    describe(decoder, job.spec);
  } else {
    errors.add(path, spec.isNull() ? "is required" : std::string("must be an object, is ") + kind_of(spec));
  }
  if (!errors.empty()) {
    return to_error(errors);
  }
  job.spec.trainers.asked = !member(spec, {"trainers", "replicas"}).isNull();
  if (!job.spec.trainers.asked) {
    job.spec.trainers.replicas = job.spec.provisioning.min_trainers;
  }
  return job;
}

}  // namespace

std::string to_string(const std::vector<FieldError>& errors, std::size_t most) {
  std::string text;
  for (std::size_t i = 0; i < errors.size() && i < most; ++i) {
    text += (text.empty() ? "" : "; ") + errors[i].field + ": " + errors[i].message;
  }
  if (errors.size() > most) {
    text += (text.empty() ? "" : "; and ") + std::to_string(errors.size() - most) + " more";
  }
  return text;
}

Result<TrainingJob> decode_training_job(const Json& object) {
  Result<TrainingJob> job = decode_fields(object);
  if (job) {
    job->raw = object;
  }
  return job;
}

Result<TrainingJob> decode_training_job(Json&& object) {
  Result<TrainingJob> job = decode_fields(object);
  if (job) {
    job->raw = std::move(object);
  }
  return job;
}

}  // namespace plimsoll::crds
