// TrainJob (trainer.kubeflow.org, Kubeflow Trainer v2): its pods are made from the template of a runtime, in which spec.trainer says the
// image, the command, the resources and the number of nodes. So its size is read from both, and written into the TrainJob alone.
//
//   Result<ObjectName> runtime = runtime_of(object, "research");    // trainingruntimes research/torch
//   Result<Workload> workload = read_train_job(object, references);
//
// Trainer 2.0 changes the template's node selector by spec.podSpecOverrides, 2.1 by spec.podTemplateOverrides, 2.2 by
// spec.runtimePatches, all of the same version v1alpha1; OverrideField says which. Pure; any thread. The workload looks into the object
// and the references. Inside workloads/ only.
#pragma once

#include <optional>
#include <string>

#include "base/json/view.h"
#include "base/result.h"
#include "workloads/references.h"
#include "workloads/workload.h"

namespace plimsoll::workloads {

inline constexpr const char* kTrainerGroup = "trainer.kubeflow.org";

enum class OverrideField { kPodSpecOverrides, kPodTemplateOverrides, kRuntimePatches };

// Errors: kInvalid without a name, kUnsupported for a runtime of another kind.
Result<ObjectName> runtime_of(const JsonView& object, const std::string& namespace_name);

// The field that the TrainJob has itself; none: the definition must tell.
std::optional<OverrideField> override_field_of(const JsonView& object);

// Errors: kUnsupported for runtimes whose nodes have several templates (MPI, Flux), and as for other kinds.
Result<Workload> read_train_job(const JsonView& object, const References& references);

}  // namespace plimsoll::workloads
