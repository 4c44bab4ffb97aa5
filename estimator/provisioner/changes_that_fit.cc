#include "estimator/provisioner/changes_that_fit.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include "estimator/provisioner/explanation.h"
#include "estimator/spec/transformer_spec.h"
#include "estimator/types/runtime_settings.h"

namespace plimsoll::estimator::inline provisioner {
namespace {

using crds::ParallelStrategy;

constexpr std::size_t kMostChanges = 4;
// A few seconds in all, and a third of that for one of them.
constexpr std::uint64_t kWorkOfChanges = 60'000'000;
constexpr std::uint64_t kWorkOfChange = kWorkOfChanges / 3;
// How far provisioning.maxTrainers and the cluster are exceeded.
constexpr std::int64_t kMoreTrainers = 1024;
constexpr std::int64_t kMostParts = 64;

// A job as it is tried, and the GPUs that are there.
struct Trial {
  crds::TrainingJob job;
  std::vector<AvailableGpu> gpus;
  std::vector<std::string> changes;  // "training.activationCheckpointing: Full"
  bool expandable_segments = false;
  std::optional<std::size_t> parts_at{};    // the change that is gradientAccumulation
  std::optional<std::size_t> offload_at{};  // the change that is offloadPercent
};

std::string accumulation_text(std::int64_t parts) {
  return "training.gradientAccumulation: " + std::to_string(parts);
}

std::string offload_text(std::int64_t percent) {
  return "training.parallelism.offload: Optimizer and offloadPercent: " + std::to_string(percent);
}

bool is_replicated(const crds::TrainingJobSpec& spec) {
  const ParallelStrategy strategy = spec.training.parallelism.strategy;
  return strategy == ParallelStrategy::kAuto || strategy == ParallelStrategy::kDDP;
}

// Each changes the trial and is true, or changes nothing, because it is so already or cannot be.

// The number of parts of a batch of each trainer is the largest; fewest_parts() finds the least.
bool in_parts(Trial& trial) {
  crds::TrainingSpec& training = trial.job.spec.training;
  if (training.parallelism.pipeline > 1) {  // micro-batches are the pipeline's
    return false;
  }
  if (training.global_batch_size > 0) {
    if (training.max_gradient_accumulation >= kMostParts) {
      return false;
    }
    training.max_gradient_accumulation = kMostParts;
    trial.changes.push_back("training.maxGradientAccumulation: " + std::to_string(kMostParts));
    return true;
  }
  const std::int64_t batch = training.batch_size_per_trainer;
  const std::int64_t most = std::min(batch, kMostParts);
  for (std::int64_t parts = most; parts > training.gradient_accumulation; --parts) {
    if (batch % parts == 0) {
      training.gradient_accumulation = parts;
      trial.parts_at = trial.changes.size();
      trial.changes.push_back(accumulation_text(parts));
      return true;
    }
  }
  return false;
}

bool saved_through_host(Trial& trial) {
  crds::CheckpointSaving& saving = trial.job.spec.training.checkpoint_saving;
  if (saving != crds::CheckpointSaving::kFull) {
    return false;
  }
  saving = crds::CheckpointSaving::kFullOffloaded;
  trial.changes.push_back("training.checkpointSaving: FullOffloaded");
  return true;
}

// Where no trainer holds the whole model, by the least change of a script: DeepSpeed moves what the CPU made whole.
bool made_elsewhere(Trial& trial) {
  crds::TrainingSpec& training = trial.job.spec.training;
  const bool zero3 = training.parallelism.strategy == ParallelStrategy::kZeRO3;
  const crds::Initialisation where = zero3 ? crds::Initialisation::kMeta : crds::Initialisation::kCPU;
  if (training.initialisation == crds::Initialisation::kAuto ||
      training.initialisation == crds::Initialisation::kMeta || training.initialisation == where) {
    return false;
  }
  training.initialisation = where;
  trial.changes.push_back(std::string("training.initialisation: ") + crds::name_of(where));
  return true;
}

bool expandable(Trial& trial) {
  std::vector<std::string> warnings;
  const AllocatorSettings settings = runtime_settings_of(trial.job.raw, warnings).allocator;
  if (settings.expandable_segments || settings.memory_fraction || trial.job.spec.model.has_tables()) {
    return false;
  }
  trial.expandable_segments = true;
  trial.changes.push_back(kExpandableSegments);
  return true;
}

bool checkpointed(Trial& trial) {
  const crds::TrainingJobSpec& spec = trial.job.spec;
  if (spec.model.dlrm || spec.training.activation_checkpointing == crds::ActivationCheckpointing::kFull) {
    return false;
  }
  trial.job.spec.training.activation_checkpointing = crds::ActivationCheckpointing::kFull;
  trial.job.spec.training.checkpoint_modules.clear();
  trial.changes.push_back("training.activationCheckpointing: Full");
  return true;
}

// Losses whose logits are computed for an eighth of the tokens at a time, as torchtune's and Liger's do.
bool chunked_loss(Trial& trial) {
  if (!trial.job.spec.model.transformer || trial.job.spec.training.loss_chunks > 1) {
    return false;
  }
  trial.job.spec.training.loss_chunks = 8;
  trial.changes.push_back("training.lossChunks: 8");
  return true;
}

bool more_trainers(Trial& trial) {
  crds::ProvisioningSpec& provisioning = trial.job.spec.provisioning;
  if (provisioning.max_trainers >= kMoreTrainers) {
    return false;
  }
  provisioning.max_trainers = kMoreTrainers;
  return true;  // the number itself is named
}

bool sharded(Trial& trial) {
  if (!is_replicated(trial.job.spec) || trial.job.spec.model.has_tables() || trial.job.spec.model.dlrm) {
    return false;
  }
  trial.job.spec.training.parallelism.strategy = ParallelStrategy::kFSDP2;
  trial.changes.push_back("training.parallelism.strategy: FSDP2");
  return true;
}

// Null without experts that compute the tokens that chose them.
std::optional<TransformerSpec> with_experts(const crds::TrainingJobSpec& spec) {
  if (!spec.model.transformer) {
    return std::nullopt;
  }
  Result<TransformerSpec> known = transformer_spec(*spec.model.transformer);
  if (!known || known->experts == 0 || known->experts_take_all) {
    return std::nullopt;
  }
  return *std::move(known);
}

// FSDP splits the experts of one tensor by their first dimension, and pads it to the number of shards.
bool split_experts(Trial& trial) {
  const std::optional<TransformerSpec> known = with_experts(trial.job.spec);
  if (!known || known->split_experts) {
    return false;
  }
  trial.job.spec.model.transformer->split_experts = true;
  trial.changes.push_back("model.transformer.splitExperts: true");
  return true;
}

bool split_by_experts(Trial& trial) {
  const crds::TrainingJobSpec& spec = trial.job.spec;
  const std::optional<TransformerSpec> known = with_experts(spec);
  const std::int64_t groups = known ? std::gcd(known->experts, spec.trainers.per_node) : 0;
  if (groups <= spec.training.parallelism.expert) {
    return false;
  }
  trial.job.spec.training.parallelism.expert = groups;
  trial.changes.push_back("training.parallelism.expert: " + std::to_string(groups));
  return true;
}

bool split_by_tensors(Trial& trial) {
  const crds::TrainingJobSpec& spec = trial.job.spec;
  const std::int64_t ways = spec.trainers.per_node;
  if (!spec.model.transformer || spec.training.parallelism.tensor >= ways) {
    return false;
  }
  crds::Parallelism& parallelism = trial.job.spec.training.parallelism;
  parallelism.tensor = ways;
  parallelism.sequence = true;
  trial.changes.push_back("training.parallelism.tensor: " + std::to_string(ways) + " and sequence: true");
  return true;
}

// All that the strategy can keep on the host; with_least_offload() finds how much of Megatron-LM's is needed.
bool offloaded(Trial& trial) {
  crds::Parallelism& parallelism = trial.job.spec.training.parallelism;
  if (parallelism.offload != crds::Offload::kNone) {
    return false;
  }
  for (const crds::Offload offload : {crds::Offload::kParameters, crds::Offload::kOptimizer}) {
    crds::Parallelism with = parallelism;
    with.offload = offload;
    if (crds::can_offload_in_part(with)) {
      trial.offload_at = trial.changes.size();
      trial.changes.push_back(offload_text(with.offload_percent));
    } else if (crds::can_offload(with)) {
      trial.changes.push_back(std::string("training.parallelism.offload: ") + crds::name_of(offload));
    } else {
      continue;
    }
    parallelism = with;
    return true;
  }
  return false;
}

// As much as the nodes with the least memory have for each GPU, less a quarter for the trainers themselves.
bool tables_on_hosts(Trial& trial) {
  crds::ProvisioningSpec& provisioning = trial.job.spec.provisioning;
  std::optional<Bytes> least;
  for (const AvailableGpu& gpu : trial.gpus) {
    if (gpu.host_memory > Bytes{} && gpu.gpus_per_node > 0) {
      const Bytes each{gpu.host_memory.count / gpu.gpus_per_node};
      least = std::min(least.value_or(each), each);
    }
  }
  const Bytes each = least ? Bytes{least->count / 4 * 3 / (1_GiB).count} * (1_GiB).count : Bytes{};
  if (!trial.job.spec.model.has_tables() || provisioning.host_memory || each == Bytes{}) {
    return false;
  }
  provisioning.host_memory = each;
  trial.changes.push_back("provisioning.hostMemoryPerTrainer: " + std::to_string(each.count / (1_GiB).count) +
                          "Gi");
  return true;
}

bool through_host(Trial& trial) {
  crds::ProvisioningSpec& provisioning = trial.job.spec.provisioning;
  if (provisioning.placement == crds::Placement::kHBMOrSwap || trial.job.spec.model.has_tables()) {
    return false;
  }
  provisioning.placement = crds::Placement::kHBMOrSwap;
  trial.changes.push_back("provisioning.placement: HBMOrSwap");
  return true;
}

bool single_samples(Trial& trial) {
  crds::TrainingSpec& training = trial.job.spec.training;
  if (training.batch_size_per_trainer <= training.gradient_accumulation) {
    return false;
  }
  training.batch_size_per_trainer = training.gradient_accumulation;
  trial.changes.push_back("training.batchSizePerTrainer: " + std::to_string(training.gradient_accumulation));
  return true;
}

bool more_gpus(Trial& trial) {
  for (AvailableGpu& gpu : trial.gpus) {
    for (crds::GpuNodeShape& shape : gpu.shapes) {
      shape.nodes = std::max(shape.nodes, kMoreTrainers);
    }
    gpu.total_gpus = std::max(gpu.total_gpus, kMoreTrainers * std::max<std::int64_t>(1, gpu.gpus_per_node));
  }
  return true;
}

using Apply = bool (*)(Trial&);

// The ways that are tried, cheapest first.
const std::vector<std::vector<Apply>>& ways() {
  static const std::vector<std::vector<Apply>> all = {
      {saved_through_host},
      {made_elsewhere},
      {expandable},
      {in_parts},
      {chunked_loss},
      {more_trainers},
      {checkpointed},
      {made_elsewhere, checkpointed},
      {checkpointed, chunked_loss},
      {tables_on_hosts},
      {more_trainers, more_gpus},
      {split_experts},
      {split_by_experts},
      {sharded},
      {sharded, more_trainers},
      {sharded, checkpointed},
      {sharded, checkpointed, expandable},
      {sharded, checkpointed, chunked_loss},
      {sharded, checkpointed, in_parts},
      {sharded, checkpointed, in_parts, more_trainers},
      {offloaded},
      {split_by_tensors, checkpointed},
      {sharded, split_by_tensors, checkpointed, in_parts},
      {sharded, offloaded, checkpointed, in_parts},
      {single_samples},
      {single_samples, sharded, checkpointed},
      {through_host},
  };
  return all;
}

// What of a way changes the trial.
std::vector<Apply> applied(const std::vector<Apply>& way, Trial& trial) {
  std::vector<Apply> changing;
  std::copy_if(way.begin(), way.end(), std::back_inserter(changing),
               [&](Apply apply) { return apply(trial); });
  return changing;
}

// Whether one of `parts` is in `way`.
bool contains_one_of(const std::vector<std::vector<Apply>>& parts, const std::vector<Apply>& way) {
  return std::any_of(parts.begin(), parts.end(), [&](const std::vector<Apply>& part) {
    return std::all_of(part.begin(), part.end(),
                       [&](Apply apply) { return std::find(way.begin(), way.end(), apply) != way.end(); });
  });
}

// What else is to be said of the number of trainers.
void add_limits(const Trial& trial, const ProvisionRequest& request, const Decision& decision,
                std::vector<std::string>& changes) {
  const crds::ProvisioningSpec& limits = request.job->spec.provisioning;
  if (decision.trainers > limits.max_trainers &&
      trial.job.spec.provisioning.max_trainers > limits.max_trainers) {
    changes.push_back("provisioning.maxTrainers: " + std::to_string(decision.trainers));
  }
  const AvailableGpu* const present = find_gpu(*request.gpus, decision.gpu_model);
  const AvailableGpu* const tried = find_gpu(trial.gpus, decision.gpu_model);
  if (present != nullptr && tried != nullptr && decision.trainers > present->total_gpus &&
      tried->total_gpus > present->total_gpus) {
    changes.push_back("more GPUs in the cluster, which has " + std::to_string(present->total_gpus));
  }
}

// The same with the fewest parts that fit.
Provision with_fewest_parts(Trial& trial, const ProvisionRequest& request, std::int64_t before,
                            Provision with_most, const Decide& decide) {
  const std::int64_t batch = trial.job.spec.training.batch_size_per_trainer;
  std::int64_t& parts = trial.job.spec.training.gradient_accumulation;
  const std::int64_t most = parts;
  for (parts = before + 1; parts < most; ++parts) {
    if (batch % parts == 0) {
      Provision fewer = decide(request);
      if (fewer.decided()) {
        trial.changes[*trial.parts_at] = accumulation_text(parts);
        return fewer;
      }
    }
  }
  return with_most;
}

// The same with the least quarters of Megatron-LM's optimizer on the host that fit.
Provision with_least_offload(Trial& trial, const ProvisionRequest& request, Provision with_all,
                             const Decide& decide) {
  std::int64_t& percent = trial.job.spec.training.parallelism.offload_percent;
  for (const std::int64_t less : {25, 50, 75}) {
    percent = less;
    Provision answer = decide(request);
    if (answer.decided()) {
      trial.changes[*trial.offload_at] = offload_text(less);
      return answer;
    }
  }
  percent = 100;
  return with_all;
}

// Half of the time that is left, so that whoever asked can still decide something else, and answer.
Budget::Time half_way_to(Budget::Time deadline) {
  if (deadline == Budget::Time::max()) {
    return deadline;
  }
  const Budget::Time now = std::chrono::steady_clock::now();
  return now + (deadline - now) / 2;
}

}  // namespace

ChangesThatFit changes_that_fit(const ProvisionRequest& request, const Decide& decide) {
  const Budget::Limits& limits = request.budget->limits();
  const Budget::Time deadline = half_way_to(limits.deadline);
  std::uint64_t work = 0;
  ChangesThatFit changes;
  std::vector<Change>& found = changes.found;
  std::vector<std::vector<Apply>> enough;  // with one of these the job fits as it was requested
  std::vector<std::vector<Apply>> tried;
  for (const std::vector<Apply>& way : ways()) {
    Trial trial{.job = *request.job, .gpus = *request.gpus, .changes = {}};
    std::vector<Apply> changing = applied(way, trial);
    if (changing.empty() || contains_one_of(enough, changing) ||
        std::find(tried.begin(), tried.end(), changing) != tried.end()) {
      continue;
    }
    tried.push_back(changing);
    Budget budget(
        {.deadline = deadline, .stop = limits.stop, .work = kWorkOfChange, .memory = limits.memory});
    if (found.size() >= kMostChanges) {
      break;
    }
    if (work >= kWorkOfChanges || budget.expired()) {
      changes.all_tried = false;
      break;
    }
    ProvisionRequest changed = request;
    changed.expandable_segments = trial.expandable_segments;
    changed.job = &trial.job;
    changed.gpus = &trial.gpus;
    changed.budget = &budget;
    Provision answer = decide(changed);
    if (answer.decided()) {
      if (trial.parts_at) {
        answer = with_fewest_parts(trial, changed, request.job->spec.training.gradient_accumulation,
                                   std::move(answer), decide);
      }
      if (trial.offload_at) {
        answer = with_least_offload(trial, changed, std::move(answer), decide);
      }
      add_limits(trial, request, *answer.decision, trial.changes);
      found.push_back({.changes = std::move(trial.changes),
                       .gpu_model = answer.decision->gpu_model,
                       .trainers = answer.decision->trainers});
      if (found.back().trainers <= request.job->spec.trainers.replicas) {
        enough.push_back(std::move(changing));  // where it takes more, something besides may take fewer
      }
    } else if (answer.event_reason == "DeadlineExceeded" || answer.event_reason == "TooLarge") {
      changes.all_tried = false;
    }
    work += budget.work_done();
  }
  std::stable_sort(found.begin(), found.end(), [&](const Change& a, const Change& b) {
    const std::int64_t requested = request.job->spec.trainers.replicas;
    return (a.trainers > requested) < (b.trainers > requested);
  });
  return changes;
}

}  // namespace plimsoll::estimator::provisioner
