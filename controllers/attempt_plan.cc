#include "controllers/attempt_plan.h"

#include <algorithm>

#include "base/json/edit.h"
#include "estimator/host_training/host_memory.h"
#include "estimator/provisioner/provisioner.h"
#include "estimator/provisioner/size_exclusion.h"
#include "estimator/swap/plan_json.h"

namespace plimsoll::controllers {
namespace {

// torchrec names tables by their module; users give its name when they load the plan.
constexpr const char* kModule = "embeddings";

// Of a shard in both forms of the plan: as trees, and as text.
constexpr Bytes kBytesPerShard = 1_KiB;
constexpr std::uint64_t kWorkPerShard = 4;

// The job with its size fixed to these trainers of this model.
crds::TrainingJob fixed(const crds::TrainingJob& job, const crds::Attempt& attempt) {
  crds::TrainingJob same = job;
  crds::ProvisioningSpec& provisioning = same.spec.provisioning;
  provisioning.min_trainers = attempt.trainers;
  provisioning.max_trainers = attempt.trainers;
  provisioning.min_throughput.clear();  // it has been given this size
  provisioning.gpu_models.clear();
  if (!attempt.gpu_model.empty()) {
    provisioning.gpu_models.push_back(attempt.gpu_model);
  }
  JsonEdit raw(std::move(same.raw));
  raw["metadata"]["annotations"].remove(crds::kProvisioningAnnotation);
  Result<Json> changed = std::move(raw).take();
  same.raw = changed ? *std::move(changed) : job.raw;  // of another shape, it holds no annotation either
  return same;
}

Result<Json> sharding_of(const crds::TrainingJob& job, const estimator::Decision& decision,
                         const estimator::AvailableGpu& gpu, Json& torchrec, Budget* budget) {
  Budget unlimited;
  Budget& within = budget == nullptr ? unlimited : *budget;
  return within.run([&]() -> Result<Json> {
    std::int64_t shards = 0;
    for (const estimator::TablePlacement& placement : decision.plan.placements) {
      shards += static_cast<std::int64_t>(placement.shards.size()) + 1;
    }
    const std::vector<crds::EmbeddingTable>& groups = job.spec.model.tables();
    const BudgetCause cause(budget, {"the plan's number of shards", shards});
    const BudgetBytes memory(budget, kBytesPerShard * shards + estimator::memory_of_expanded(groups));
    charge(budget, static_cast<std::uint64_t>(shards) * kWorkPerShard);
    estimator::ShardRequest request;
    request.tables = estimator::expand_tables(groups, budget);
    request.topology = {.trainers = decision.trainers,
                        .per_node = decision.per_node,
                        .intra_node_bandwidth = gpu.model.intra_node_bandwidth,
                        .inter_node_bandwidth = gpu.model.inter_node_bandwidth,
                        .hbm_bandwidth = gpu.model.hbm_bandwidth};
    request.batch_size = decision.batch.micro_batch();
    request.optimizer = job.spec.training.embedding_optimizer;
    request.host_budget =
        decision.host_memory_per_trainer.value_or(job.spec.provisioning.host_memory.value_or(Bytes{}));
    torchrec = estimator::to_torchrec_json(request, decision.plan, kModule, "cuda");
    return estimator::to_json(request, decision.plan);
  });
}

// What the attempt has begun with, else what was decided, else the fewest parts; 0 samples if the batch cannot be
// divided among its trainers.
crds::BatchSplit batch_of(const crds::TrainingJob& job, const crds::Attempt& attempt,
                          const estimator::Provision& provision) {
  if (attempt.batch_size > 0) {
    return {attempt.batch_size, attempt.accumulation};
  }
  if (provision.decided()) {
    return provision.decision->batch;
  }
  const Result<std::vector<crds::BatchSplit>> splits =
      crds::batch_splits(job.spec.training, attempt.trainers);
  return splits ? splits->front() : crds::BatchSplit();
}

// Of a swap plan all samples of a step, which its one process takes.
std::int64_t global_batch(const crds::TrainingJob& job, const crds::Attempt& attempt,
                          const estimator::Provision& provision) {
  return provision.decided() && provision.decision->swap
             ? provision.decision->batch.batch_size
             : crds::global_batch_of(job.spec.training, attempt.trainers);
}

// Nothing for a job that trains through host memory, which asks for what it takes.
std::optional<Bytes> predicted_host_memory(const crds::TrainingJob& job,
                                           const estimator::Decision& decision) {
  if (decision.swap || decision.host_memory > Bytes{}) {
    return std::nullopt;
  }
  crds::TrainingSpec training = job.spec.training;
  if (training.checkpoint_loading == crds::CheckpointLoading::kAuto) {
    training.checkpoint_loading = crds::CheckpointLoading::kEveryRank;
  }
  const std::int64_t processes = std::min(decision.per_node, decision.trainers);
  const Bytes demand = estimator::host_demand(training, decision.estimate, processes).total();
  constexpr std::int64_t kGiB = (1_GiB).count;
  return Bytes{(demand + Bytes{kGiB - 1}).count / kGiB * kGiB};  // as people write limits
}

}  // namespace

AttemptPlan plan_attempt(const crds::TrainingJob& job, const crds::Attempt& attempt,
                         const estimator::TraceFile* graph, const estimator::ClusterView& cluster,
                         Budget* budget, const std::vector<crds::Attempt>& earlier) {
  const crds::TrainingJob same = fixed(job, attempt);
  std::vector<estimator::FailedSize> failed = estimator::failed_sizes(job, earlier, cluster.gpus);
  std::erase_if(failed, [](const estimator::FailedSize& size) { return !size.swap_plan; });
  const estimator::Provision provision =
      estimator::provision({.job = &same,
                            .graph = graph,
                            .gpus = &cluster.gpus,
                            .profile = cluster.profile_of(job.namespace_name, job.spec.model.family),
                            .method = estimator::Method::kPlimsoll,
                            .budget = budget,
                            .failed = std::move(failed)});
  AttemptPlan made;
  made.batch = batch_of(job, attempt, provision);
  made.global_batch = global_batch(job, attempt, provision);
  Json plan = json_object({{"gpuModel", attempt.gpu_model},
                           {"trainers", attempt.trainers},
                           {"perNode", attempt.per_node},
                           {"globalBatchSize", made.global_batch},
                           {"batchSizePerTrainer", made.batch.batch_size},
                           {"gradientAccumulation", made.batch.accumulation}});
  if (provision.decided()) {
    const estimator::Decision& decision = *provision.decision;
    const estimator::Estimate& estimate = decision.estimate;
    made.reason = "EstimateSucceeded";
    made.upper_bound = estimate.peak.upper_bound;
    made.learned = estimate.learned;
    made.estimate = json_object({{"gpuModel", decision.gpu_model},
                                 {"trainers", decision.trainers},
                                 {"peakPhase", estimate.peak_phase},
                                 {"peak", estimator::to_json(estimate.peak)},
                                 {"breakdown", estimator::to_json(estimate.breakdown)}});
    set_member(plan, "peak", estimator::to_json(estimate.peak));
    made.host_memory = decision.host_memory;
    made.predicted_host_memory = predicted_host_memory(job, decision);
    if (decision.swap) {
      made.swap = estimator::to_json(*decision.swap);
      made.how = estimator::text_of(*decision.swap);
      made.shared_memory = decision.swap->shared_memory;
      made.swap_text = write_json(
          estimator::to_json(decision.swap->planned, decision.swap->layers, decision.swap->capacity).take());
    }
    if (decision.throughput) {
      made.throughput = estimator::to_json(*decision.throughput, decision.requested);
    }
    const estimator::AvailableGpu* gpu = estimator::find_gpu(cluster.gpus, decision.gpu_model);
    if (gpu != nullptr && !decision.plan.placements.empty()) {
      Json torchrec;
      const Result<Json> sharding = sharding_of(job, decision, *gpu, torchrec, budget);
      if (sharding) {
        set_member(plan, "sharding", *sharding);
        set_member(plan, "torchrec", std::move(torchrec));
      } else {
        made.reason = "PlanTooLarge";
        made.problem = "the plan of the embedding tables was left out: " + sharding.error().message;
      }
    }
  } else {
    made.reason = provision.event_reason;
    made.problem = provision.reason;
  }
  made.text = write_json(plan);
  return made;
}

}  // namespace plimsoll::controllers
