#include "estimator/provisioner/explanation.h"

#include "base/utf8.h"

namespace plimsoll::estimator::inline provisioner {

std::string gpus_text(std::int64_t count, const std::string& model) {
  return std::to_string(count) + " x " + model;
}

std::string explain_choice(const crds::TrainingJobSpec& spec, const crds::Trainers& requested,
                           const Candidate& chosen, std::int64_t trainers, Bytes peak) {
  std::string text = gpus_text(trainers, chosen.name());
  const bool as_requested = requested.replicas_given && requested.replicas == trainers &&
                            (requested.gpu_model.empty() || same_name(requested.gpu_model, chosen.name()));
  if (as_requested) {
    text += " GPUs, as requested";
  } else {
    text += spec.provisioning.objective == crds::Objective::kLowestCost
                ? " GPUs are the cheapest choice that holds the job"
                : " GPUs are the fewest that hold the job";
  }
  if (requested.replicas_given && !as_requested) {
    text += "; " +
            (requested.gpu_model.empty() ? std::to_string(requested.replicas)
                                         : gpus_text(requested.replicas, requested.gpu_model)) +
            " requested";
    if (trainers < requested.replicas) {
      text += ", " + std::to_string(requested.replicas - trainers) + " saved";
    } else if (trainers > requested.replicas) {
      text += trainers == chosen.least ? ", below minTrainers in whole nodes" : ", too few to hold it";
    }
  }
  const std::int64_t present = chosen.gpu->total_gpus - chosen.gpu->addable_gpus;
  if (trainers > present) {
    text += "; " + std::to_string(trainers - present) + " of them on nodes that autoscaling has yet to add";
  }
  return text + ". Peak at most " + to_string(peak) + " of " + to_string(chosen.gpu->model.memory) + " a GPU";
}

std::string explain_no_count(const crds::ProvisioningSpec& provisioning, const Candidate& candidate) {
  const std::string most = "provisioning.maxTrainers " + std::to_string(provisioning.max_trainers);
  const std::string nodes = " in whole nodes of " + std::to_string(candidate.per_node);
  return candidate.failed > 0 ? "out of memory on " + std::to_string(candidate.failed) +
                                    " trainers before, and " + most + " leaves no larger count" + nodes
                              : most + " leaves no count from minTrainers " +
                                    std::to_string(provisioning.min_trainers) + " up" + nodes;
}

std::string explain_capacity(const Candidate& candidate, std::int64_t trainers) {
  return "needs at least " + std::to_string(trainers) + " GPUs, and the cluster has " +
         std::to_string(candidate.capacity) + " in nodes of " + std::to_string(candidate.per_node);
}

std::string usable_text(Bytes usable, Bytes shortfall) {
  return to_string(usable) + (shortfall > Bytes{} ? " (" + to_string(shortfall) +
                                                        " less, which attempts needed beyond their estimate)"
                                                  : std::string());
}

const char* event_reason_of(const Error& exceeded) {
  return exceeded.code == ErrorCode::kTimeout     ? "DeadlineExceeded"
         : exceeded.code == ErrorCode::kCancelled ? "Cancelled"
                                                  : "TooLarge";
}

std::string unchanged_warning(const std::string& reason, const crds::TrainingJobSpec& spec) {
  return utf8_shortened(
      reason + "; the job keeps its " + std::to_string(spec.trainers.replicas) + " trainers", kWarningLimit);
}

}  // namespace plimsoll::estimator::provisioner
