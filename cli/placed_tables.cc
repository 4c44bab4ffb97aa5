#include "cli/placed_tables.h"

#include <utility>

#include "crds/global_batch.h"

namespace plimsoll::cli {

Result<PlacedTables> place_tables(const estimator::EstimateRequest& request, const estimator::GpuModel& gpu,
                                  Bytes room, AnswerBudget& budget,
                                  std::vector<estimator::Constraint> constraints, Bytes host_room) {
  PlacedTables placed;
  estimator::ShardRequest& sharding = placed.request;
  sharding.constraints = std::move(constraints);
  sharding.tables = estimator::expand_tables(request.model->tables());
  sharding.topology = {.trainers = request.trainers,
                       .per_node = request.per_node,
                       .intra_node_bandwidth = gpu.intra_node_bandwidth,
                       .inter_node_bandwidth = gpu.inter_node_bandwidth,
                       .hbm_bandwidth = gpu.hbm_bandwidth};
  sharding.batch_size =
      crds::BatchSplit{request.training->batch_size_per_trainer, request.training->gradient_accumulation}
          .micro_batch();
  sharding.optimizer = request.training->embedding_optimizer;
  sharding.budget = room;
  sharding.host_budget = host_room;
  sharding.work_budget = budget.get();
  sharding.allocated_bytes = true;  // as the provisioner
  Result<estimator::Plan> plan = budget.run([&] { return estimator::shard(sharding, &placed.why); });
  sharding.work_budget = nullptr;  // which does not outlive this
  if (plan) {
    placed.plan = *std::move(plan);
    placed.embeddings = placed.plan.max_memory;
    const bool halves = request.training->precision == crds::Precision::kBF16;
    placed.exchanges = exchanges_of(
        sharding, placed.plan,
        {.collectives_copy = request.device == estimator::Device::kCpu, .result_bytes = halves ? 2 : 4});
    return placed;
  }
  if (plan.error().code != ErrorCode::kUnfittable) {
    return plan.error();
  }
  placed.embeddings =
      room + Bytes{(placed.why.missing + Bytes{request.trainers - 1}).count / request.trainers};
  return placed;
}

}  // namespace plimsoll::cli
