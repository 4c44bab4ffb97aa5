// What one shard of a table costs the rank that holds it: time and memory, in closed form.
//
//   CostModel model(topology, batch_size, crds::Optimizer::kRowWiseAdagrad);
//   TableCost cost(model, table);
//   double ms = cost.milliseconds(ShardingType::kTableWise, table.dim);
//   Bytes held = cost.memory(ShardingType::kTableWise, table.rows, table.dim);
//
// The formulas are those of torchrec's planner (meta-pytorch/torchrec 376cac6a, planner/estimator and
// planner/shard_estimators.py) for pooled, unweighted tables in fused kernels, data-parallel ones in dense
// kernels, and no input pipeline; docs/sharding.md lists them. Plain values; any thread; a TableCost does not
// refer to what it was made from.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "crds/training_job.h"
#include "estimator/sharder/sharder.h"

namespace plimsoll::estimator {

// A table narrower than this is read no faster, so columns are not cut below it.
inline constexpr std::int64_t kLeastColumns = 32;

struct CostModel {
  CostModel(const Topology& topology, std::int64_t batch_size, crds::Optimizer optimizer);

  std::int64_t trainers;
  std::int64_t local;  // ranks of one host: per_node, or all of them when they are fewer
  std::int64_t nodes;
  double batch;
  double intra;  // bytes a millisecond, as the next three
  double inter;
  double hbm;
  double global;  // of a collective of all trainers: the slowest link on its way
  crds::Optimizer optimizer;
};

class TableCost {
 public:
  TableCost(const CostModel& model, const Table& table);

  // Of one shard of `columns` columns, per iteration, on each rank that holds one. Row-wise shards take the
  // same time whatever their rows, since every rank takes part in the exchange.
  double milliseconds(ShardingType type, std::int64_t columns) const;

  // Of one shard: weights, optimizer state, and its input and output buffers. Zero when it has no rows.
  Bytes memory(ShardingType type, std::int64_t rows, std::int64_t columns) const;

  // Rows in every shard of this type but the last ones, which may be short or empty.
  std::int64_t row_block(ShardingType type) const;

  // Rows of the shard with this number, counted over the ranks that share the table's rows.
  std::int64_t rows_of(ShardingType type, std::int64_t shard) const;

 private:
  Bytes state(std::int64_t rows, std::int64_t columns) const;

  CostModel model_;
  std::int64_t rows_;
  std::int64_t dim_;
  std::int64_t element_;
  double lookups_;  // of one rank's batch
  double outputs_;  // pooled rows of one rank's batch
  Bytes input_;     // one rank's indices
  Bytes input_of_all_;
  Bytes input_of_nodes_;
};

}  // namespace plimsoll::estimator
