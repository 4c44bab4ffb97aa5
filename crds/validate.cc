#include "crds/checker.h"
#include "crds/decoder.h"
#include "crds/pod_template_rules.h"
#include "crds/training_job_fields.h"
#include "crds/training_job_rules.h"

namespace plimsoll::crds {
namespace {

void check_name(const TrainingJob& job, FieldErrors& errors) {
  const FieldPath metadata("metadata");
  const FieldPath name(metadata, "name");
  if (job.name.empty()) {
    // The API server completes a generateName after admission.
    if (member(job.raw, {"metadata", "generateName"}).empty()) {
      errors.add(name, "is required");
    }
  } else if (!obeys(kJobName, job.name)) {
    errors.add(name, std::string("must be ") + kJobName.form + ", is " + quoted(job.name));
  }
}

}  // namespace

std::vector<FieldError> validate(const TrainingJob& job) {
  FieldErrors errors;
  check_name(job, errors);
  const FieldPath path("spec");
  Checker checker(path, errors);
  describe(checker, job.spec);
  check_pod_template(JsonView(member(job.raw, {"spec", "template"})), FieldPath(path, "template"), errors);
  return std::move(errors).take();
}

std::vector<FieldError> validate_update(const TrainingJob& before, const TrainingJob& now) {
  FieldErrors errors;
  const FieldPath spec("spec");
  if (before.spec.model != now.spec.model) {
    errors.add(FieldPath(spec, "model"), "model cannot be changed; create another job for another model");
  }
  if (!before.spec.suspend && before.spec.training != now.spec.training) {
    errors.add(FieldPath(spec, "training"), "training may only change while the job is suspended");
  }
  if (before.spec.managed_by != now.spec.managed_by) {
    errors.add(FieldPath(spec, "managedBy"), "managedBy cannot be changed");
  }
  return std::move(errors).take();
}

}  // namespace plimsoll::crds
