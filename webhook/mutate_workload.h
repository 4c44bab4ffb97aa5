// mutate_workload(): the answer of the mutating webhook for a workload of another kind than TrainingJob (workloads/workload.h) that
// the label plimsoll.dev/family opts in.
//
//   Mutation mutation = mutate_workload(request, inputs);
//   reply(mutation.answer);
//
// Such a workload is sized when it is created, by the same decision as a TrainingJob. With mode Off annotations are all that is
// written. Without the annotation plimsoll.dev/mode, the mode is `inputs.namespace_mode`, which the path of the request says.
// Never rejects: a workload that cannot be read, estimated or sized stays as it is, with a warning. What another object made
// (ownerReferences with a controller) is left alone, because that object is sized. Pure except for `inputs.tables`; any thread.
#pragma once

#include "webhook/mutate.h"

namespace plimsoll::webhook {

Mutation mutate_workload(const AdmissionRequest& request, const MutateInputs& inputs);

}  // namespace plimsoll::webhook
