// Time and memory that one shard of a table costs the rank that holds it, in closed form.
//
//   CostModel model(request);
//   TableCost cost(model, table);
//   double ms = cost.times(ShardingType::kTableWise, Kernel::kFused, table.dim).total();
//   Held held = cost.held(ShardingType::kTableWise, Kernel::kFused, table.rows, table.dim);
//
// With CostMethod::kTorchrec the formulas are those of torchrec's planner (meta-pytorch/torchrec 376cac6a,
// planner/estimator and planner/shard_estimators.py) for pooled tables; docs/sharding.md lists them, and
// where kStages differs. Plain values; any thread; a TableCost refers neither to its model nor to its table.
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "crds/training_job.h"
#include "estimator/sharder/plan.h"

namespace plimsoll::estimator::inline sharder {

struct CostModel {
  explicit CostModel(const ShardRequest& request);

  std::int64_t trainers;
  std::int64_t local;  // ranks of one host: per_node, or all ranks if they are fewer
  std::int64_t nodes;
  double batch;
  double intra;  // bytes a millisecond, as the next three
  double inter;
  double host;
  double global;                  // the slowest link that a collective of all trainers uses
  std::array<double, 4> kernels;  // by Kernel: bytes a millisecond of its lookups
  double hbm;
  crds::Optimizer optimizer;
  Pipeline pipeline;
  bool embeddings_at_peak;
  double cache_ratio;
  CostMethod method;
  bool allocated_bytes;
};

struct Held {
  Bytes card;
  Bytes host;       // 0 for kernels that keep all rows on the GPU
  Bytes weights;    // of the shard, on GPU and host
  Bytes optimizer;  // optimizer state, likewise
};

class TableCost {
 public:
  TableCost(const CostModel& model, const Table& table);

  // Of one shard of `columns` columns. The time of a row-wise shard does not depend on its rows, because every
  // rank takes part in the exchange.
  StageTimes times(ShardingType type, Kernel kernel, std::int64_t columns) const;

  // Weights, optimizer state, and input and output buffers of one shard. Zero when it has no rows.
  Held held(ShardingType type, Kernel kernel, std::int64_t rows, std::int64_t columns) const;

  // Rows of every shard of this type, except that the last ones may be shorter or empty.
  std::int64_t row_block(ShardingType type) const;

  // Rows of the shard with this number, counted over the ranks that share the table's rows.
  std::int64_t rows_of(ShardingType type, std::int64_t shard) const;

 private:
  Bytes input(ShardingType type) const;
  Bytes buffers(ShardingType type, Kernel kernel, std::int64_t columns) const;
  Bytes optimizer_state(Bytes weights, std::int64_t rows) const;

  CostModel model_;
  std::int64_t rows_;
  std::int64_t dim_;
  std::int64_t element_;
  bool weighted_;
  double lookups_;       // of one rank's batch
  double outputs_;       // pooled rows of one rank's batch, as exchanges carry them
  double held_outputs_;  // and as buffers hold them
  Bytes input_;          // one rank's indices
  Bytes input_of_all_;
  Bytes input_of_nodes_;
};

}  // namespace plimsoll::estimator::sharder
