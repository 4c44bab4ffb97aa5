#include "webhook/mutate.h"

#include <algorithm>
#include <utility>

#include "base/json/edit.h"
#include "crds/training_job_status.h"
#include "estimator/provisioner/patch.h"
#include "estimator/provisioner/provisioner.h"
#include "estimator/provisioner/size_exclusion.h"

namespace plimsoll::webhook {
namespace {

Mutation leave_as_is(const char* reason) {
  Mutation mutation;
  mutation.reason = reason;
  return mutation;
}

Mutation fall_back(const char* reason, const std::string& why) {
  Mutation mutation = leave_as_is(reason);
  mutation.message = why;
  mutation.answer.warnings.push_back("the job keeps its trainers: " + why);
  return mutation;
}

bool annotation_changed(const AdmissionRequest& request, const char* name) {
  return changed(request, {"metadata", "annotations", name});
}

// Whether an update leaves nothing to decide.
bool is_settled(const AdmissionRequest& request) {
  if (changed(request, {"spec", "model"}) || changed(request, {"spec", "training"}) ||
      changed(request, {"spec", "provisioning"}) ||
      annotation_changed(request, crds::kProvisioningAnnotation)) {
    return false;
  }
  const bool decision_changed = annotation_changed(request, crds::kDecisionAnnotation);
  if (changed(request, {"spec", "trainers"})) {
    // `kubectl apply` of the original manifest restores the requested count and keeps our annotation.
    return decision_changed &&
           !member(request.object, {"metadata", "annotations", crds::kDecisionAnnotation}).is_null();
  }
  // An edit of labels causes no decision for an object without one; one that lost its decision gets a new
  // one.
  return !decision_changed;
}

Mutation decide(const AdmissionRequest& request, crds::TrainingJob& job, const estimator::TraceFile* graph,
                const MutateInputs& inputs) {
  // `kubectl apply` of the original manifest must not restore a size that ran out of memory.
  JsonObject history;
  history["status"] = tree_of(member(request.old_object, {"status"}));
  const estimator::ProvisionRequest to_provision{
      .job = &job,
      .graph = graph,
      .gpus = &inputs.cluster->gpus,
      .profile = inputs.cluster->profile_of(job.namespace_name, job.spec.model.family),
      .method = estimator::Method::kPlimsoll,
      .budget = inputs.budget,
      .failed = estimator::failed_sizes(job, crds::decode_status(history).attempts, inputs.cluster->gpus),
      .suggest = true,
      .min_share_of_asked = inputs.policy.min_share_of_asked,
      .swap_training = inputs.policy.gates.enabled(crds::Feature::kSwapTraining)};
  const estimator::Provision provision = estimator::provision(to_provision);

  Mutation mutation;
  mutation.answer.patch = estimator::patch_for(job, provision);
  mutation.answer.warnings = provision.warnings;
  mutation.applied = !mutation.answer.patch.empty();
  mutation.reason = provision.event_reason;
  mutation.message = provision.reason;
  if (!mutation.applied && provision.decided()) {
    // The user saw them with the decision; do not repeat them when the object is admitted again.
    mutation.answer.warnings.clear();
  }
  if (estimator::rejects(job.spec.provisioning, provision)) {
    mutation.answer.allowed = false;
    mutation.answer.code = 403;
    mutation.answer.reason = "Forbidden";
    mutation.answer.message =
        provision.reason +
        "; provisioning.onUnfit is Deny, so the job is rejected instead of started as it is";
    mutation.answer.warnings.pop_back();  // that the job keeps its trainers
    mutation.reason = "Denied";
    return mutation;
  }
  // Applied again, the manifest restores what it requests: the same decision saves nothing anew.
  const bool first =
      member(request.old_object, {"metadata", "annotations", crds::kDecisionAnnotation}).is_null();
  if (mutation.applied && first && !request.dry_run &&
      job.spec.provisioning.mode != crds::ProvisioningMode::kOff) {
    mutation.gpus_saved =
        std::max<std::int64_t>(0, job.spec.trainers.replicas - provision.decision->trainers);
  }
  return mutation;
}

}  // namespace

bool is_training_job(const AdmissionRequest& request) {
  return request.group == crds::kGroup && request.version == crds::kVersion &&
         request.kind == "TrainingJob" && request.sub_resource.empty();
}

Mutation mutate(const AdmissionRequest& request, const MutateInputs& inputs) {
  if (!is_training_job(request)) {
    return leave_as_is("NotATrainingJob");
  }
  const bool being_deleted = !member(request.object, {"metadata", "deletionTimestamp"}).is_null();
  if ((request.operation != Operation::kCreate && request.operation != Operation::kUpdate) || being_deleted) {
    return leave_as_is("NothingToDecide");
  }
  if (text_member(request.object, {"metadata", "annotations", crds::kProvisioningAnnotation}) == "disabled") {
    return leave_as_is("Disabled");
  }
  if (request.operation == Operation::kUpdate && is_settled(request)) {
    return leave_as_is("Unchanged");
  }
  Result<crds::TrainingJob> job = crds::decode_training_job(request.object);
  if (!job) {
    return fall_back("Malformed", job.error().message);
  }
  if (const std::vector<crds::FieldError> wrong = crds::validate(*job); !wrong.empty()) {
    return fall_back("Malformed", crds::to_string(wrong));
  }
  if (crds::is_managed_elsewhere(*job)) {
    return leave_as_is("ManagedElsewhere");
  }
  if (job->namespace_name.empty()) {
    job->namespace_name = request.namespace_name;  // a create request may leave it to the URL
  }
  inputs.policy.settle_mode(job->spec.provisioning, inputs.namespace_mode);
  const Result<estimator::SharedGraph> graph = estimator::resolve_model(*job, inputs.tables, inputs.budget);
  if (!graph && graph.error().code == ErrorCode::kTooLarge) {
    return fall_back("TooLarge", graph.error().message);
  }
  if (!graph) {
    return fall_back(job->spec.model.graph ? "GraphUnavailable" : "TablesUnavailable", graph.error().message);
  }
  return decide(request, *job, graph->get(), inputs);
}

}  // namespace plimsoll::webhook
