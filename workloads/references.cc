#include "workloads/references.h"

#include "workloads/train_job.h"
#include "workloads/workload.h"

namespace plimsoll::workloads {
namespace {

Result<Json> read(const ObjectName& name, const std::string& what, ObjectSource& source, Budget* budget) {
  Result<Json> object = source.object(name, budget);
  return object ? std::move(object) : object.error().within(what);
}

}  // namespace

Result<References> read_references(const Kind& kind, const JsonView& object,
                                   const std::string& namespace_name, ObjectSource* source, Budget* budget) {
  References references;
  if (kind.group != kTrainerGroup) {
    return references;
  }
  if (source == nullptr) {
    return Error(ErrorCode::kUnavailable, "this process has no access to training runtimes");
  }
  const Result<ObjectName> runtime = runtime_of(object, namespace_name);
  if (!runtime) {
    return runtime.error();
  }
  Result<Json> found =
      read(*runtime, "read the runtime of spec.runtimeRef (" + runtime->plural + ")", *source, budget);
  if (!found) {
    return found.error();
  }
  references.runtime = *std::move(found);
  if (!override_field_of(object)) {
    found = read({.group = "apiextensions.k8s.io",
                  .version = "v1",
                  .plural = "customresourcedefinitions",
                  .namespace_name = {},
                  .name = std::string("trainjobs.") + kTrainerGroup},
                 "read the definition of TrainJobs", *source, budget);
    if (!found) {
      return found.error();
    }
    references.definition = *std::move(found);
  }
  return references;
}

}  // namespace plimsoll::workloads
