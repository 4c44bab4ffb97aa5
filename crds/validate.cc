#include <set>

#include "crds/checker.h"
#include "crds/decoder.h"
#include "crds/training_job_fields.h"
#include "crds/training_job_rules.h"

namespace plimsoll::crds {
namespace {

constexpr std::int64_t kMaxContainers = 32;

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

// The member as an object or list, or null with an error.
const Json* required(const Json& object, const char* name, bool is_list, const FieldPath& path,
                     FieldErrors& errors) {
  const Json& found = member(object, {name});
  if (found.isNull()) {
    errors.add(path, "is required");
    return nullptr;
  }
  if (is_list ? !found.isArray() : !found.isObject()) {
    errors.add(path, std::string("must be ") + (is_list ? "a list" : "an object") + ", is " + kind_of(found));
    return nullptr;
  }
  return &found;
}

void check_containers(const Json& containers, const FieldPath& path, FieldErrors& errors) {
  const std::int64_t size = containers.size();
  if (size < 1 || size > kMaxContainers) {
    errors.add(path,
               "must have 1 to " + std::to_string(kMaxContainers) + " items, has " + std::to_string(size));
    return;
  }
  std::set<std::string> names;
  std::size_t index = 0;
  for (const Json& container : containers) {
    const FieldPath here(path, index++);
    const FieldPath name_path(here, "name");
    const Json& name = member(container, {"name"});
    if (!container.isObject()) {
      errors.add(here, std::string("must be an object, is ") + kind_of(container));
    } else if (!name.isString()) {
      errors.add(name_path,
                 name.isNull() ? "is required" : std::string("must be a string, is ") + kind_of(name));
    } else if (!obeys(kContainerName, name.asString())) {
      errors.add(name_path,
                 std::string("must be ") + kContainerName.form + ", is " + quoted(name.asString()));
    } else if (!names.insert(name.asString()).second) {
      errors.add(name_path, "is also the name of another container");
    }
  }
}

// The template is the user's, and stays JSON; only what Plimsoll relies upon is looked at.
void check_template(const TrainingJob& job, const FieldPath& spec_path, FieldErrors& errors) {
  const FieldPath path(spec_path, "template");
  const Json* pod_template = required(member(job.raw, {"spec"}), "template", false, path, errors);
  if (pod_template == nullptr) {
    return;
  }
  const Json& metadata = member(*pod_template, {"metadata"});
  if (!metadata.isNull() && !metadata.isObject()) {
    errors.add(FieldPath(path, "metadata"), std::string("must be an object, is ") + kind_of(metadata));
  }
  const FieldPath pod_path(path, "spec");
  const Json* pod = required(*pod_template, "spec", false, pod_path, errors);
  if (pod == nullptr) {
    return;
  }
  const FieldPath containers_path(pod_path, "containers");
  if (const Json* containers = required(*pod, "containers", true, containers_path, errors)) {
    check_containers(*containers, containers_path, errors);
  }
}

}  // namespace

std::vector<FieldError> validate(const TrainingJob& job) {
  FieldErrors errors;
  check_name(job, errors);
  const FieldPath path("spec");
  Checker checker(path, errors);
  describe(checker, job.spec);
  check_template(job, path, errors);
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
