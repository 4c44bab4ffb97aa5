// mutate(): the answer of the mutating webhook to one request: the JSON patch that gives a TrainingJob its
// GPU model and the number of its trainers.
//
//   Mutation mutation = mutate(request, {.cluster = view.get(), .tables = &tables, .budget = &budget});
//   reply(mutation.answer);
//
// It never rejects a job: one that cannot be read, estimated or placed keeps the user's values and gets a
// warning (AMP's fallback); only validate() rejects. Idempotent: its own result gets no patch. A dry run gets
// the same response. An update is decided again only when the inputs of the decision have changed; when the
// decision was changed together with the trainers (by the controller, after an out-of-memory), that decision
// stays. A job that names no mode gets that of its namespace or of the cluster written into it, with its decision.
// Pure except for `tables`; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/budget.h"
#include "crds/cluster_policy.h"
#include "estimator/provisioner/cluster_view.h"
#include "estimator/provisioner/model_source.h"
#include "webhook/admission_review.h"
#include "workloads/references.h"

namespace plimsoll::webhook {

struct MutateInputs {
  const estimator::ClusterView* cluster = nullptr;
  estimator::ModelSource* tables = nullptr;  // null: jobs that name a ConfigMap keep their values
  Budget* budget = nullptr;                  // of the decision; null: no limit
  // What workloads of other kinds refer to; null: those that need it keep their values.
  workloads::ObjectSource* objects = nullptr;
  crds::ClusterPolicy policy = {};
  std::optional<crds::ProvisioningMode> namespace_mode = {};  // what the label of the namespace says
};

struct Mutation {
  AdmissionAnswer answer;
  bool applied = false;         // there is a patch
  std::string reason;           // CamelCase, one of a few dozen: for metrics
  std::string message;          // one sentence for users; may be empty
  std::int64_t gpus_saved = 0;  // by the job's first decision; 0 for later ones, and for a dry run
};

Mutation mutate(const AdmissionRequest& request, const MutateInputs& inputs);

// True for plimsoll.dev/v1alpha1 TrainingJob itself, not one of its subresources.
bool is_training_job(const AdmissionRequest& request);

}  // namespace plimsoll::webhook
