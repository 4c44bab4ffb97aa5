// References: the objects of the cluster without which a workload cannot be sized, because its own object does not have everything.
//
//   Result<References> references = read_references(*kind, object, "research", source, &budget);
//   Result<Workload> workload = read_workload(*kind, object, *references);
//
// Only a TrainJob (trainer.kubeflow.org) needs some: its pod template is in the runtime that it names, and which field changes that
// template's node selector depends on the release of Trainer, which its CustomResourceDefinition tells. Plain values; any thread.
#pragma once

#include <string>

#include "base/budget.h"
#include "base/json/json.h"
#include "base/json/view.h"
#include "base/result.h"

namespace plimsoll::workloads {

struct ObjectName {
  std::string group;
  std::string version;
  std::string plural;
  std::string namespace_name;  // empty: of the cluster
  std::string name;
};

// Reads objects of the cluster. Implementations are thread-safe; calls block until the budget's deadline at most.
class ObjectSource {
 public:
  virtual ~ObjectSource() = default;
  // Errors: the API's own; kTimeout when the deadline has passed.
  virtual Result<Json> object(const ObjectName& name, Budget* budget) = 0;
};

// Null where the kind needs none.
struct References {
  Json runtime;  // the TrainingRuntime or ClusterTrainingRuntime that spec.runtimeRef names
  Json
      definition;  // the CustomResourceDefinition of TrainJobs; null, too, where the object tells which field there is
};

struct Kind;

// Errors: those of the source, and kUnavailable without one; kUnsupported for a runtime of another kind.
Result<References> read_references(const Kind& kind, const JsonView& object,
                                   const std::string& namespace_name, ObjectSource* source, Budget* budget);

}  // namespace plimsoll::workloads
