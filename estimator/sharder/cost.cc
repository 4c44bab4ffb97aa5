#include "estimator/sharder/cost.h"

#include <algorithm>
#include <cmath>

namespace plimsoll::estimator {

namespace {

// torchrec planner/constants.py.
constexpr double kIndexBytes = 8;
constexpr double kBatchedCopyFactor = 2.455;
constexpr double kElementwiseFactor = 9.22;  // optimizer kernels of a data-parallel table
constexpr double kDenseKernelShare = 0.5;    // of HBM bandwidth
constexpr double kBackwardFactor = 2;        // backward compute over forward compute

// A thread block that reads a narrow row leaves lanes idle.
double block_penalty(std::int64_t columns) {
  if (columns >= 128) {
    return 1;
  }
  return columns >= 64 ? 1.15 : 1.75;
}

double per_millisecond(Bytes a_second) {
  return static_cast<double>(a_second.count) / 1000;
}

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

}  // namespace

const char* name_of(ShardingType type) {
  switch (type) {
    case ShardingType::kDataParallel: return "data_parallel";
    case ShardingType::kTableWise: return "table_wise";
    case ShardingType::kColumnWise: return "column_wise";
    case ShardingType::kRowWise: return "row_wise";
    case ShardingType::kTableRowWise: return "table_row_wise";
  }
  return "";
}

CostModel::CostModel(const Topology& topology, std::int64_t batch_size, crds::Optimizer embedding_optimizer)
    : trainers(topology.trainers),
      local(std::min(topology.per_node, topology.trainers)),
      nodes(topology.trainers / local),
      batch(static_cast<double>(batch_size)),
      intra(per_millisecond(topology.intra_node_bandwidth)),
      inter(per_millisecond(topology.inter_node_bandwidth)),
      hbm(per_millisecond(topology.hbm_bandwidth)),
      global(trainers > local ? inter : intra),
      optimizer(embedding_optimizer) {}

TableCost::TableCost(const CostModel& model, const Table& table)
    : model_(model),
      rows_(table.rows),
      dim_(table.dim),
      element_(table.element_bytes),
      lookups_(table.lookups_per_sample * model.batch),
      outputs_(std::min(1.0, table.lookups_per_sample) * model.batch),
      input_(Bytes::ceil(kIndexBytes * lookups_)),
      input_of_all_(Bytes::ceil(lookups_ * static_cast<double>(model.trainers) * kIndexBytes)),
      input_of_nodes_(Bytes::ceil(lookups_ * static_cast<double>(model.nodes) * kIndexBytes)) {}

double TableCost::milliseconds(ShardingType type, std::int64_t columns) const {
  const double trainers = static_cast<double>(model_.trainers);
  const double local = static_cast<double>(model_.local);
  const double nodes = static_cast<double>(model_.nodes);
  const double element = static_cast<double>(element_);
  const double width = static_cast<double>(columns) * element;
  const double pooled = outputs_ * trainers * width;  // what all ranks together get from this shard
  const double both_ways = 1 + kBackwardFactor;

  switch (type) {
    case ShardingType::kTableWise:
    case ShardingType::kColumnWise: {
      const double read = static_cast<double>(std::max(columns, kLeastColumns)) * element;
      const double forward =
          block_penalty(columns) *
          (static_cast<double>(input_of_all_.count) + lookups_ * trainers * read + pooled) / model_.hbm;
      return both_ways * forward + 2 * pooled / model_.global;
    }
    case ShardingType::kRowWise: {
      const double forward = (static_cast<double>(input_.count) + lookups_ * width + pooled) / model_.hbm;
      return both_ways * forward + 2 * pooled / model_.global + kBatchedCopyFactor * pooled / model_.hbm;
    }
    case ShardingType::kTableRowWise: {
      const double forward =
          (static_cast<double>(input_of_nodes_.count) + lookups_ * nodes * width + pooled) / model_.hbm;
      const double across = model_.nodes > 1 ? outputs_ * nodes * width / model_.inter : 0;
      return both_ways * forward + 2 * (pooled / model_.intra + across) +
             kBatchedCopyFactor * pooled / model_.hbm;
    }
    case ShardingType::kDataParallel: {
      const double bandwidth = kDenseKernelShare * model_.hbm;
      const double forward =
          (static_cast<double>(input_.count) + lookups_ * width + outputs_ * width) / bandwidth;
      const double gradient = static_cast<double>(rows_) * width;
      const double rings = std::min(nodes, 2.0);
      double all_reduce = gradient * (2 * rings - 1) / rings / (model_.inter * local);
      if (model_.nodes > 2) {
        all_reduce *= 2;
      }
      return both_ways * forward + all_reduce + kElementwiseFactor * gradient / bandwidth;
    }
  }
  return 0;
}

Bytes TableCost::state(std::int64_t rows, std::int64_t columns) const {
  const Bytes weights = Bytes{rows} * columns * element_;
  switch (model_.optimizer) {
    case crds::Optimizer::kSGD: return weights;
    case crds::Optimizer::kRowWiseAdagrad: return weights + Bytes{ceil_divide(weights.count, dim_)};
    case crds::Optimizer::kMomentum:
    case crds::Optimizer::kAdagrad:
    case crds::Optimizer::kRMSprop: return weights * 2;
    // torchrec's planner counts one state for LAMB and AdamW; the kernels allocate two.
    case crds::Optimizer::kLAMB:
    case crds::Optimizer::kAdam:
    case crds::Optimizer::kAdamW: return weights * 3;
  }
  return weights;
}

Bytes TableCost::memory(ShardingType type, std::int64_t rows, std::int64_t columns) const {
  if (rows == 0) {
    return Bytes{0};
  }
  const double width = static_cast<double>(columns) * static_cast<double>(element_);
  if (type == ShardingType::kDataParallel) {
    return state(rows, columns) + input_ + Bytes::ceil(outputs_ * width);
  }
  const Bytes output = Bytes::ceil(outputs_ * static_cast<double>(model_.trainers) * width);
  const Bytes input = type == ShardingType::kRowWise        ? input_
                      : type == ShardingType::kTableRowWise ? input_of_nodes_
                                                            : input_of_all_;
  return state(rows, columns) + input + output;
}

std::int64_t TableCost::row_block(ShardingType type) const {
  switch (type) {
    case ShardingType::kRowWise: return ceil_divide(rows_, model_.trainers);
    case ShardingType::kTableRowWise: return ceil_divide(rows_, model_.local);
    default: return rows_;
  }
}

std::int64_t TableCost::rows_of(ShardingType type, std::int64_t shard) const {
  if (type != ShardingType::kRowWise && type != ShardingType::kTableRowWise) {
    return rows_;
  }
  const std::int64_t block = row_block(type);
  return std::clamp<std::int64_t>(rows_ - shard * block, 0, block);
}

}  // namespace plimsoll::estimator
