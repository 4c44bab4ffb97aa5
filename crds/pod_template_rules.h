// Checks the fields of a job's pod template that Plimsoll reads or changes: the types of core/v1's own
// schema (PodTemplateSpec), and the names that it requires. The API server checks the fields that Plimsoll
// passes on. Inside crds/ only. Pure; any thread.
#pragma once

#include "base/json/view.h"
#include "crds/field_path.h"

namespace plimsoll::crds {

// `pod_template` is spec.template of a job, and `path` says so. Null counts as absent, as it does for the API
// server.
void check_pod_template(const JsonView& pod_template, const FieldPath& path, FieldErrors& errors);

}  // namespace plimsoll::crds
