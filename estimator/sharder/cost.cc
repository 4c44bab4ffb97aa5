#include "estimator/sharder/cost.h"

#include <algorithm>
#include <cmath>

namespace plimsoll::estimator::inline sharder {

namespace {

// torchrec planner/constants.py.
constexpr double kIndexBytes = 8;
constexpr double kBatchedCopyFactor = 2.455;
constexpr double kElementwiseFactor = 9.22;  // optimizer kernels of a data-parallel table
constexpr double kDenseKernelShare = 0.5;    // of HBM bandwidth
constexpr double kHostKernelShare = 0.1;     // of the bandwidth between GPU and host, or its mix with HBM's
constexpr double kBackwardFactor = 2;        // backward compute over forward compute
constexpr double kWeightsFactor = 1.1;       // gradients of the lookups' weights over forward compute
constexpr std::int64_t kNarrowestRead = 32;  // columns; narrower rows are read no faster

// planner/shard_estimators.py: batches of input that a pipeline holds; and the bytes in which a cache keeps
// track, for each row of the table and for each row that it can hold.
constexpr std::int64_t kSparseDistInputs = 2;
constexpr std::int64_t kPrefetchInputs = 3;
constexpr std::int64_t kPrefetchBurst = 7;  // and these more for a cached table: 1 + 6 while it prefetches
constexpr double kCacheBytesARow = 4;
constexpr double kCacheBytesASlot = 16;

constexpr std::int64_t kStateBytes = 4;  // FBGEMM keeps optimizer state in fp32, whatever the weights are

// A thread block that reads a narrow row has idle lanes.
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

bool by_columns(ShardingType type) {
  return type == ShardingType::kTableWise || type == ShardingType::kColumnWise ||
         type == ShardingType::kTableColumnWise;
}

bool by_rows_in_a_node(ShardingType type) {
  return type == ShardingType::kTableRowWise || type == ShardingType::kGrid;
}

// Optimizer states for each weight.
double states(crds::Optimizer optimizer, std::int64_t dim) {
  switch (optimizer) {
    case crds::Optimizer::kSGD: return 0;
    case crds::Optimizer::kRowWiseAdagrad: return 1 / static_cast<double>(dim);
    case crds::Optimizer::kMomentum:
    case crds::Optimizer::kAdagrad:
    case crds::Optimizer::kRMSprop: return 1;
    // torchrec's planner counts one state for LAMB and AdamW; the kernels allocate two.
    case crds::Optimizer::kLAMB:
    case crds::Optimizer::kAdam:
    case crds::Optimizer::kAdamW: return 2;
    default: break;  // crds::kNotForTables
  }
  return 0;
}

}  // namespace

const char* name_of(ShardingType type) {
  static constexpr const char* kNames[] = {"data_parallel",     "table_wise", "column_wise",
                                           "table_column_wise", "row_wise",   "table_row_wise",
                                           "grid_shard"};
  return kNames[static_cast<std::size_t>(type)];
}

const char* name_of(Kernel kernel) {
  static constexpr const char* kNames[] = {"fused", "dense", "fused_uvm", "fused_uvm_caching"};
  return kNames[static_cast<std::size_t>(kernel)];
}

CostModel::CostModel(const ShardRequest& request)
    : trainers(request.topology.trainers),
      local(std::min(request.topology.per_node, trainers)),
      nodes(trainers / local),
      batch(static_cast<double>(request.batch_size)),
      intra(per_millisecond(request.topology.intra_node_bandwidth)),
      inter(per_millisecond(request.topology.inter_node_bandwidth)),
      host(per_millisecond(request.topology.host_bandwidth)),
      global(trainers > local ? inter : intra),
      kernels(),
      hbm(per_millisecond(request.topology.hbm_bandwidth)),
      optimizer(request.optimizer),
      pipeline(request.pipeline),
      embeddings_at_peak(request.embeddings_at_peak),
      cache_ratio(request.cache_ratio),
      method(request.cost),
      allocated_bytes(request.allocated_bytes || request.cost == CostMethod::kStages) {
  // planner/constants.py, kernel_bw_lookup. A prefetch hides the time to fill a cache.
  const double cached = (cache_ratio * hbm + (1 - cache_ratio) * host) * kHostKernelShare;
  kernels = {hbm, hbm * kDenseKernelShare, host * kHostKernelShare,
             pipeline == Pipeline::kPrefetchSparseDist ? hbm : cached};
}

TableCost::TableCost(const CostModel& model, const Table& table)
    : model_(model),
      rows_(table.rows),
      dim_(table.dim),
      element_(table.element_bytes),
      weighted_(table.weighted),
      lookups_(table.lookups_per_sample * model.batch),
      // An exchange has a pooled row for every sample, with or without a lookup, and so have its buffers.
      outputs_(!table.pooled                         ? lookups_
               : model.method == CostMethod::kStages ? table.pooled_rows() * model.batch
                                                     : table.pooled_rows_looked_up() * model.batch),
      held_outputs_(model.allocated_bytes && table.pooled ? table.pooled_rows() * model.batch : outputs_),
      input_(Bytes::ceil(kIndexBytes * lookups_)),
      input_of_all_(Bytes::ceil(lookups_ * static_cast<double>(model.trainers) * kIndexBytes)),
      input_of_nodes_(Bytes::ceil(lookups_ * static_cast<double>(model.nodes) * kIndexBytes)) {}

// Indices that one shard reads.
Bytes TableCost::input(ShardingType type) const {
  return by_columns(type) ? input_of_all_ : by_rows_in_a_node(type) ? input_of_nodes_ : input_;
}

StageTimes TableCost::times(ShardingType type, Kernel kernel, std::int64_t columns) const {
  const double trainers = static_cast<double>(model_.trainers);
  const double local = static_cast<double>(model_.local);
  const double nodes = static_cast<double>(model_.nodes);
  const double element = static_cast<double>(element_);
  const double width = static_cast<double>(columns) * element;
  const double pooled = outputs_ * trainers * width;  // what all ranks together get from this shard
  const double bandwidth = model_.kernels[static_cast<std::size_t>(kernel)];
  const double indices = static_cast<double>(input(type).count) * (weighted_ ? 2 : 1);

  StageTimes times;
  const auto compute = [&](double bytes) {
    times.forward_compute = bytes / bandwidth;
    times.backward_compute = times.forward_compute * (kBackwardFactor + (weighted_ ? kWeightsFactor : 0));
  };
  switch (type) {
    case ShardingType::kTableWise:
    case ShardingType::kColumnWise:
    case ShardingType::kTableColumnWise: {
      const double read = static_cast<double>(std::max(columns, kNarrowestRead)) * element;
      compute(block_penalty(columns) * (indices + lookups_ * trainers * read + pooled));
      times.forward_exchange = times.backward_exchange = pooled / model_.global;
      break;
    }
    case ShardingType::kRowWise:
      compute(indices + lookups_ * width + pooled);
      times.forward_exchange = pooled / model_.global;
      times.backward_exchange = pooled / model_.global + kBatchedCopyFactor * pooled / bandwidth;
      break;
    case ShardingType::kTableRowWise:
    case ShardingType::kGrid: {
      compute(indices + lookups_ * nodes * width + pooled);
      const double across = model_.nodes > 1 ? outputs_ * nodes * width / model_.inter : 0;
      times.forward_exchange = pooled / model_.intra + across;
      times.backward_exchange = times.forward_exchange + kBatchedCopyFactor * pooled / bandwidth;
      break;
    }
    case ShardingType::kDataParallel: {
      compute(indices + lookups_ * width + outputs_ * width);
      const double gradient = static_cast<double>(rows_) * width;
      const double rings = std::min(nodes, 2.0);
      times.backward_exchange = gradient * (2 * rings - 1) / rings / (model_.inter * local);
      if (model_.nodes > 2) {
        times.backward_exchange *= 2;
      }
      times.backward_exchange += kElementwiseFactor * gradient / bandwidth;
      break;
    }
  }
  return times;
}

Bytes TableCost::optimizer_state(Bytes weights, std::int64_t rows) const {
  if (!model_.allocated_bytes) {
    return Bytes::ceil(static_cast<double>(weights.count) * states(model_.optimizer, dim_));
  }
  if (model_.optimizer == crds::Optimizer::kRowWiseAdagrad) {
    return Bytes{rows} * kStateBytes;  // each column block keeps its own
  }
  const std::int64_t of_each = static_cast<std::int64_t>(states(model_.optimizer, dim_)) * kStateBytes;
  return Bytes{weights.count / element_} * of_each;
}

Bytes TableCost::buffers(ShardingType type, Kernel kernel, std::int64_t columns) const {
  const double width = static_cast<double>(columns) * static_cast<double>(element_);
  const double ranks = type == ShardingType::kDataParallel ? 1 : static_cast<double>(model_.trainers);
  const Bytes output = Bytes::ceil(held_outputs_ * ranks * width);
  const Bytes in = input(type);
  const Bytes at_peak = model_.embeddings_at_peak ? output : Bytes{};
  switch (model_.pipeline) {
    case Pipeline::kNone: return in + output;
    case Pipeline::kSparseDist: return in * kSparseDistInputs + at_peak;
    case Pipeline::kPrefetchSparseDist:
      return in * (kPrefetchInputs + (kernel == Kernel::kHostCached ? kPrefetchBurst : 0)) + at_peak;
  }
  return {};
}

Held TableCost::held(ShardingType type, Kernel kernel, std::int64_t rows, std::int64_t columns) const {
  if (rows == 0) {
    return {};
  }
  const Bytes weights = Bytes{rows} * columns * element_;
  const Bytes optimizer = optimizer_state(weights, rows);
  const Bytes state = weights + optimizer;
  Held held{.card = buffers(type, kernel, columns), .host = {}, .weights = weights, .optimizer = optimizer};
  if (kernel == Kernel::kFused || kernel == Kernel::kDense) {
    held.card += state;
    return held;
  }
  held.host = state;
  if (kernel == Kernel::kHostCached) {
    // The cache of the whole table, rounded, then this shard's part of it: as planner/shard_estimators.py.
    const Bytes table = Bytes{rows_} * dim_ * element_;
    const double cache = std::nearbyint(static_cast<double>(table.count) * model_.cache_ratio);
    const long double share = static_cast<long double>(rows) * static_cast<long double>(columns) /
                              (static_cast<long double>(rows_) * static_cast<long double>(dim_));
    const Bytes cached = Bytes::ceil(static_cast<double>(static_cast<long double>(cache) * share));
    const double cached_rows = static_cast<double>(rows) * model_.cache_ratio;
    held.card +=
        cached + optimizer_state(cached, static_cast<std::int64_t>(std::ceil(cached_rows))) +
        Bytes::ceil(static_cast<double>(rows) * (kCacheBytesARow + model_.cache_ratio * kCacheBytesASlot));
  }
  return held;
}

std::int64_t TableCost::row_block(ShardingType type) const {
  if (type == ShardingType::kRowWise) {
    return ceil_divide(rows_, model_.trainers);
  }
  return by_rows_in_a_node(type) ? ceil_divide(rows_, model_.local) : rows_;
}

std::int64_t TableCost::rows_of(ShardingType type, std::int64_t shard) const {
  if (type != ShardingType::kRowWise && !by_rows_in_a_node(type)) {
    return rows_;
  }
  const std::int64_t block = row_block(type);
  return std::clamp<std::int64_t>(rows_ - shard * block, 0, block);
}

}  // namespace plimsoll::estimator::sharder
