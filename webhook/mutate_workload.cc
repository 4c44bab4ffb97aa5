#include "webhook/mutate_workload.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "estimator/provisioner/provisioner.h"
#include "workloads/sizing.h"

namespace plimsoll::webhook {
namespace {

constexpr std::string_view kMultiKueue = "kueue.x-k8s.io/multikueue";

Mutation left_alone(const char* reason) {
  Mutation mutation;
  mutation.reason = reason;
  return mutation;
}

Mutation keep(const AdmissionRequest& request, const char* reason, const std::string& why) {
  Mutation mutation = left_alone(reason);
  mutation.message = why;
  mutation.answer.warnings.push_back("the " + request.kind + " keeps its size: " + why);
  return mutation;
}

std::string annotation(const AdmissionRequest& request, const char* name) {
  return text_member(request.object, {"metadata", "annotations", name});
}

// Why there is nothing to do; null: there is.
const char* why_not(const workloads::Kind& kind, const AdmissionRequest& request) {
  const JsonView& object = request.object;
  if (request.operation != Operation::kCreate || !request.sub_resource.empty()) {
    return "NothingToDecide";
  }
  if (!workloads::opts_in(kind, object)) {
    return "NotOptedIn";
  }
  if (annotation(request, crds::kProvisioningAnnotation) == "disabled") {
    return "Disabled";
  }
  if (workloads::has_controller(object)) {
    return "OwnedByAnother";
  }
  const bool elsewhere = text_member(object, {"spec", "managedBy"}) == kMultiKueue ||
                         text_member(object, {"spec", "runPolicy", "managedBy"}) == kMultiKueue;
  return elsewhere ? "ManagedElsewhere" : nullptr;
}

// The feature that a workload of this family asks for and that is off. Without a family, it is a TrainJob that opts in as for a plugin.
std::optional<crds::Feature> feature_off(const std::string& family, const crds::FeatureGates& gates) {
  if (!gates.enabled(crds::Feature::kWorkloadSizing)) {
    return crds::Feature::kWorkloadSizing;
  }
  if (family.empty() && !gates.enabled(crds::Feature::kTrainerAutoconfPlugin)) {
    return crds::Feature::kTrainerAutoconfPlugin;
  }
  return std::nullopt;
}

const char* reason_of(const Error& error, const char* not_found = "ModelUnknown") {
  return error.code == ErrorCode::kInvalid       ? "Malformed"
         : error.code == ErrorCode::kNotFound    ? not_found
         : error.code == ErrorCode::kTooLarge    ? "TooLarge"
         : error.code == ErrorCode::kUnsupported ? "Unsupported"
                                                 : "ModelUnavailable";
}

Mutation decide(const AdmissionRequest& request, workloads::WorkloadSizing& sizing,
                const estimator::TraceFile* graph, const MutateInputs& inputs) {
  crds::TrainingJob& job = sizing.job();
  const estimator::Provision provision =
      estimator::provision({.job = &job,
                            .graph = graph,
                            .gpus = &inputs.cluster->gpus,
                            .profile = inputs.cluster->profile_of(job.namespace_name, job.spec.model.family),
                            .method = estimator::Method::kPlimsoll,
                            .budget = inputs.budget,
                            .suggest = true,
                            .min_share_of_asked = inputs.policy.min_share_of_asked,
                            .swap_training = inputs.policy.gates.enabled(crds::Feature::kSwapTraining)});
  Mutation mutation;
  mutation.reason = provision.event_reason;
  mutation.message = provision.reason;
  mutation.answer.warnings = provision.warnings;
  Result<Json> patch = sizing.patch_for(provision);
  if (!patch) {
    return keep(request, "CountFixed", patch.error().message);
  }
  mutation.answer.patch = *std::move(patch);
  mutation.applied = !mutation.answer.patch.empty();
  if (provision.decided() && !mutation.applied) {
    mutation.answer.warnings.clear();  // the user saw them with the decision
  }
  const bool sized = mutation.applied && job.spec.provisioning.mode != crds::ProvisioningMode::kOff;
  if (sized && !sizing.why_fixed().empty()) {
    mutation.answer.warnings.push_back("the number of pods stays: " + sizing.why_fixed());
  }
  if (sized && !request.dry_run) {
    mutation.gpus_saved =
        std::max<std::int64_t>(0, job.spec.trainers.replicas - provision.decision->trainers);
  }
  return mutation;
}

}  // namespace

Mutation mutate_workload(const AdmissionRequest& request, const MutateInputs& inputs) {
  const workloads::Kind* kind = workloads::find_kind(request.group, request.kind);
  if (kind == nullptr) {
    return left_alone("NotAWorkload");
  }
  if (const char* reason = why_not(*kind, request)) {
    return left_alone(reason);
  }
  const std::string family = text_member(request.object, {"metadata", "labels", workloads::kFamilyLabel});
  if (const std::optional<crds::Feature> off = feature_off(family, inputs.policy.gates)) {
    return keep(request, "FeatureOff", crds::off_text(*off));
  }
  const std::string wanted = annotation(request, crds::kModeKey);
  if (!wanted.empty() && wanted != "Auto" && wanted != "Off") {
    return keep(request, "Malformed",
                std::string("annotation ") + crds::kModeKey + " must be Auto or Off, is " + wanted);
  }
  crds::ProvisioningSpec provisioning;
  provisioning.mode_given = !wanted.empty();
  provisioning.mode = wanted == "Off" ? crds::ProvisioningMode::kOff : crds::ProvisioningMode::kAuto;
  inputs.policy.settle_mode(provisioning, inputs.namespace_mode);
  const Result<workloads::Description> description = workloads::find_description(
      request.object, request.namespace_name, inputs.cluster->profile_of(request.namespace_name, family),
      inputs.tables, inputs.budget);
  if (!description) {
    return keep(request, reason_of(description.error()), description.error().message);
  }
  const Result<workloads::References> references = workloads::read_references(
      *kind, request.object, request.namespace_name, inputs.objects, inputs.budget);
  if (!references) {
    return keep(request, reason_of(references.error(), "RuntimeUnknown"), references.error().message);
  }
  Result<workloads::WorkloadSizing> sizing = workloads::WorkloadSizing::of(
      *kind, request.object, *references, request.namespace_name, *description, provisioning.mode);
  if (!sizing) {
    return keep(request, reason_of(sizing.error()), sizing.error().message);
  }
  const Result<estimator::SharedGraph> graph =
      estimator::resolve_model(sizing->job(), inputs.tables, inputs.budget);
  if (!graph) {
    return keep(request, reason_of(graph.error()), graph.error().message);
  }
  return decide(request, *sizing, graph->get(), inputs);
}

}  // namespace plimsoll::webhook
