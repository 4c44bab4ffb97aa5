#include "controllers/attempt_plan.h"

#include "base/json/edit.h"
#include "estimator/provisioner/provisioner.h"
#include "estimator/provisioner/size_exclusion.h"

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
    const std::vector<crds::EmbeddingTable>& groups = job.spec.model.dlrm->tables;
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
    request.batch_size = job.spec.training.batch_size_per_trainer;
    request.optimizer = job.spec.training.embedding_optimizer;
    torchrec = estimator::to_torchrec_json(request, decision.plan, kModule, "cuda");
    return estimator::to_json(request, decision.plan);
  });
}

}  // namespace

AttemptPlan plan_attempt(const crds::TrainingJob& job, const crds::Attempt& attempt,
                         const estimator::TraceFile* graph, const estimator::ClusterView& cluster,
                         Budget* budget) {
  const crds::TrainingJob same = fixed(job, attempt);
  const estimator::Provision provision =
      estimator::provision({.job = &same,
                            .graph = graph,
                            .gpus = &cluster.gpus,
                            .profile = cluster.profile_of(job.namespace_name, job.spec.model.family),
                            .method = estimator::Method::kPlimsoll,
                            .budget = budget});
  AttemptPlan made;
  Json plan = json_object({{"gpuModel", attempt.gpu_model},
                           {"trainers", attempt.trainers},
                           {"perNode", attempt.per_node},
                           {"batchSizePerTrainer", job.spec.training.batch_size_per_trainer}});
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
