// A workload of another kind than TrainingJob (workloads/workload.h) as a job that the commands answer for. The webhook sizes it in the
// same way; here it needs no label, because the command was asked for it.
//
//   const workloads::Kind* kind = kind_of(document.object);
//   Result<std::shared_ptr<const WorkloadJob>> job = read_workload_job(*kind, document.object, "team-a", sources);
//
// One thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/json/json.h"
#include "base/result.h"
#include "cli/job_sources.h"
#include "estimator/provisioner/model_source.h"
#include "workloads/references.h"
#include "workloads/sizing.h"
#include "workloads/workload.h"

namespace plimsoll::cli {

// `sizing` looks into `references` and into the object, which must outlive it.
struct WorkloadJob {
  std::string kind;
  bool opted_in = false;  // whether the webhook would size it
  workloads::References references;
  estimator::SharedGraph graph;  // null without one
  std::optional<workloads::WorkloadSizing> sizing;
};

// Null where Plimsoll does not size objects of this kind.
const workloads::Kind* kind_of(const Json& object);

// The mode is that of the annotation plimsoll.dev/mode, else Auto. Errors: those of the sources; kInvalid; kUnsupported for a workload that has
// nothing to size, or that does not show it; kNotFound where nothing describes its model.
Result<std::shared_ptr<const WorkloadJob>> read_workload_job(const workloads::Kind& kind, const Json& object,
                                                             const std::string& namespace_name,
                                                             const JobSources& sources);

}  // namespace plimsoll::cli
