// The fields of a pod template that core/v1 does not have, such as a misspelt name. The schema of a TrainingJob leaves
// the template open, so the API server says nothing of them; the pods are then made without. They are for warnings, not
// for refusals: a cluster that is newer than the table (core_v1/pod_fields.json, from a kube-apiserver's OpenAPI) may know
// them. Pure; any thread.
//
//   for (const std::string& text : warnings_of_unknown_fields(pod_template, "spec.template")) {
//     warn(text);  // "spec.template.spec.contaners: unknown field; did you mean containers? (core/v1 of ..."
//   }
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json/view.h"
#include "crds/training_job.h"

namespace plimsoll::crds {

// At most kMaxFieldErrors, the first five with the closest name. `pod_template` is a core/v1 PodTemplateSpec, and `path` is where it stands. Values of a wrong
// type have none: they are others' errors.
std::vector<FieldError> unknown_pod_fields(const JsonView& pod_template, std::string_view path);

// A sentence for the user on each of the first five, with the version of Kubernetes that the table is of, and one on how
// many more there are.
std::vector<std::string> warnings_of_unknown_fields(const JsonView& pod_template, std::string_view path);

}  // namespace plimsoll::crds
