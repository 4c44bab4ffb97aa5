// mutate(): the answer of the mutating webhook to one request: the JSON patch that gives a TrainingJob its
// GPU model and the number of its trainers.
//
//   Mutation mutation = mutate(request, {.cluster = view.get(), .tables = &tables, .budget = &budget});
//   reply(mutation.answer);
//
// It never refuses: what cannot be read, estimated or placed keeps the user's values and gets a warning
// (AMP's fallback), and validate() is the one to say no. Idempotent: its own result gets no patch. A dry run
// is answered as the real thing, since nothing is written but the answer. An update is decided anew only when
// what the decision rests on has changed; when the decision itself was changed along with the trainers,
// whoever did that (the controller, after an out-of-memory) has decided. Pure but for `tables`; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/budget.h"
#include "estimator/provisioner/cluster_view.h"
#include "estimator/provisioner/model_source.h"
#include "webhook/admission_review.h"

namespace plimsoll::webhook {

struct MutateInputs {
  const estimator::ClusterView* cluster = nullptr;
  estimator::ModelSource* tables = nullptr;  // null: jobs that name a ConfigMap keep their values
  Budget* budget = nullptr;                  // of the decision; null: no limit
};

struct Mutation {
  AdmissionAnswer answer;
  bool applied = false;         // there is a patch
  std::string reason;           // CamelCase, one of a few dozen: for metrics
  std::string message;          // one sentence for people; empty when there is nothing to tell
  std::int64_t gpus_saved = 0;  // by this patch, against what the object said before; 0 for a dry run
};

Mutation mutate(const AdmissionRequest& request, const MutateInputs& inputs);

// True for plimsoll.dev/v1alpha1 TrainingJob itself, not one of its subresources.
bool is_training_job(const AdmissionRequest& request);

}  // namespace plimsoll::webhook
