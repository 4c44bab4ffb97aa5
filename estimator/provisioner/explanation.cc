#include "estimator/provisioner/explanation.h"

#include <algorithm>
#include <sstream>

#include "base/utf8.h"
#include "base/words.h"
#include "estimator/provisioner/provisioner.h"
#include "estimator/spec/transformer_spec.h"

namespace plimsoll::estimator::inline provisioner {

namespace {

// What the number of trainers does to the samples of an optimizer step, or to how trainers take them; empty where
// it does nothing.
std::string batch_text(const crds::TrainingSpec& training, const crds::Trainers& requested,
                       const Choice& choice) {
  if (training.global_batch_size > 0) {
    const crds::BatchSplit& batch = choice.batch;
    return "; each replica takes " + std::to_string(batch.batch_size) + " of the " +
           std::to_string(training.global_batch_size) + " samples" +
           (batch.accumulation > 1 ? ", in " + std::to_string(batch.accumulation) + " parts" : "");
  }
  const std::int64_t now = crds::global_batch_of(training, choice.trainers);
  const std::int64_t before = crds::global_batch_of(training, requested.replicas);
  if (!requested.replicas_given || requested.replicas == choice.trainers || now == 0 || before == 0) {
    return "";
  }
  return "; the global batch is " + std::to_string(now) + " samples instead of " + std::to_string(before);
}

// Why a job gets more trainers than it requests.
std::string why_more(const crds::TrainingJobSpec& spec, std::int64_t requested, const Choice& choice) {
  if (choice.trainers > choice.candidate->least) {
    return ", too few to hold it";
  }
  if (requested <= choice.candidate->failed) {
    return ", which ran out of memory";
  }
  return requested < spec.provisioning.min_trainers ? ", below minTrainers in whole nodes"
                                                    : ", not a whole number of nodes and of model replicas";
}

const char* reason_of(crds::Objective objective) {
  switch (objective) {
    case crds::Objective::kFewestGPUs: break;
    case crds::Objective::kLowestCost: return " GPUs are the cheapest choice that holds the job";
    case crds::Objective::kLowestCostPerSample: return " GPUs cost the least for the same samples";
    case crds::Objective::kSoonestStart: return " GPUs are what can start the soonest";
  }
  return " GPUs are the fewest that hold the job";
}

}  // namespace

std::string share_text(double share) {
  std::ostringstream text;
  text << share * 100 << '%';
  return text.str();
}

std::string explain_choice(const crds::TrainingJobSpec& spec, const crds::Trainers& requested,
                           const Choice& choice) {
  const Candidate& chosen = *choice.candidate;
  const std::int64_t trainers = choice.trainers;
  std::string text = gpus_text(trainers, chosen.name());
  const bool as_requested = requested.replicas_given && requested.replicas == trainers &&
                            (requested.gpu_model.empty() || same_name(requested.gpu_model, chosen.name()));
  if (as_requested) {
    text += " GPUs, as requested";
  } else if (chosen.kept > 0 && trainers == chosen.least && requested.replicas == trainers) {
    text += " GPUs keep the requested number, on another GPU model";
  } else if (choice.min_share_of_asked > 0) {
    text += " GPUs hold the job, and no fewer than " + share_text(choice.min_share_of_asked) +
            " of those requested are given";
  } else if (choice.by_throughput) {
    text += " GPUs are the fewest that reach provisioning.minThroughput";
  } else if (trainers == chosen.most && trainers < requested.replicas) {
    text += " GPUs are as many as provisioning.maxTrainers allows";
  } else {
    text += reason_of(spec.provisioning.objective);
  }
  if (requested.replicas_given && !as_requested) {
    text += "; " +
            (requested.gpu_model.empty() ? std::to_string(requested.replicas)
                                         : gpus_text(requested.replicas, requested.gpu_model)) +
            " requested";
    if (trainers < requested.replicas) {
      text += ", " + std::to_string(requested.replicas - trainers) + " saved";
    } else if (trainers > requested.replicas) {
      text += choice.by_throughput ? ", too slow" : why_more(spec, requested.replicas, choice);
    }
  }
  text += batch_text(spec.training, requested, choice);
  const std::int64_t present = chosen.gpu->total_gpus - chosen.gpu->addable_gpus;
  if (trainers > present) {
    text += "; " + std::to_string(trainers - present) + " of them on nodes that autoscaling has yet to add";
  }
  return text + ". Peak at most " + to_string(choice.peak) + " of " + to_string(chosen.gpu->model.memory) +
         " a GPU";
}

std::string explain_swap(const crds::Trainers& requested, const Candidate& candidate,
                         const SwapTraining& swap) {
  const std::int64_t gpus = swap.planned.plan.gpus;
  std::string text = gpus_text(gpus, candidate.name());
  if (requested.replicas_given && requested.replicas != gpus) {
    text += " of one node instead of " + std::to_string(requested.replicas);
  }
  return text + " train the job through host memory, as no allowed GPUs hold it, by " + text_of(swap);
}

std::string explain_no_division(const crds::TrainingJobSpec& spec, const Candidate& candidate) {
  std::string text =
      "training.globalBatchSize " + std::to_string(spec.training.global_batch_size) +
      " cannot be divided among any number of trainers from " + std::to_string(candidate.least) +
      (candidate.floor > 0 ? " (the least share of those requested)" : "") + " to " +
      std::to_string(candidate.most) + " in whole nodes of " + std::to_string(candidate.per_node);
  crds::TrainingSpec of_ones = spec.training;
  of_ones.global_batch_size = 0;
  of_ones.batch_size_per_trainer = 1;
  const std::int64_t replicas = crds::global_batch_of(of_ones, candidate.least);
  if (replicas == 0) {
    return text;
  }
  // The nearest batches of which each replica of the least number of trainers takes whole parts.
  const std::int64_t step =
      (Bytes{replicas} * std::max<std::int64_t>(1, spec.training.gradient_accumulation)).count;
  const std::int64_t below = spec.training.global_batch_size / step * step;
  text += "; ";
  text += below > 0 ? std::to_string(below) + " or " : "";
  return text + std::to_string((Bytes{below} + Bytes{step}).count) + " could be";
}

std::string explain_no_count(const crds::ProvisioningSpec& provisioning, const Candidate& candidate) {
  const std::string most = "provisioning.maxTrainers " + std::to_string(provisioning.max_trainers);
  const std::string nodes = " in whole nodes of " + std::to_string(candidate.per_node);
  return candidate.failed > 0 ? "out of memory on " + counted(candidate.failed, "trainer") + " before, and " +
                                    most + " leaves no larger count" + nodes
                              : most + " leaves no count from minTrainers " +
                                    std::to_string(provisioning.min_trainers) + " up" + nodes;
}

std::string explain_capacity(const Candidate& candidate, std::int64_t trainers) {
  return "needs at least " + std::to_string(trainers) + " GPUs, and the cluster has " +
         std::to_string(candidate.capacity) + " in nodes of " + std::to_string(candidate.per_node);
}

std::string explain_excess(const crds::TrainingJobSpec& spec, const Estimate& estimate) {
  if (estimate.largest_live.empty()) {
    return estimate.initial ? estimate.initial->warning : std::string();
  }
  const LiveTensor& largest = estimate.largest_live.front();
  std::string text =
      "the largest tensor is " + largest.name + " (" + largest.kind + ") with " + to_string(largest.bytes);
  const bool of_logits = largest.name.starts_with("loss") || largest.name.starts_with("head");
  if (of_logits && spec.model.transformer && spec.training.loss_chunks == 1) {
    const Result<TransformerSpec> transformer = transformer_spec(*spec.model.transformer);
    text += transformer && transformer->loss_in_chunks()
                ? ", of the logits of all tokens, which training.lossChunks takes in parts"
                : "";
  }
  if (!more_trainers_take_less(spec)) {
    text += "; more trainers would not take less each, because each holds the model and a batch of its own";
  }
  return text;
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
  const std::string kept = "; the job keeps its " + counted(spec.trainers.replicas, "trainer");
  return utf8_shortened(reason, kWarningLimit - kept.size()) + kept;  // whatever is cut, what happens is said
}

}  // namespace plimsoll::estimator::provisioner
