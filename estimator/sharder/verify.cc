// verify(): what a plan must be, from the definitions in docs/sharding.md. It shares no code with the search
// or its cost model, on purpose: an error in one is seen by the other.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "estimator/sharder/sharder.h"

namespace plimsoll::estimator {

namespace {

using Interval = std::pair<std::int64_t, std::int64_t>;

// Double sums of thousands of terms in different orders agree to this.
constexpr double kTolerance = 1e-9;

bool near(double a, double b) {
  return std::abs(a - b) <= kTolerance * std::max({std::abs(a), std::abs(b), 1e-9});
}

class Verifier {
 public:
  Verifier(const ShardRequest& request, const Plan& plan) : request_(request), plan_(plan) {
    ranks_ = request.topology.trainers;
    host_ = std::min(request.topology.per_node, ranks_);
    hosts_ = ranks_ / host_;
    ms_.assign(static_cast<std::size_t>(ranks_), 0.0);
    bytes_.assign(static_cast<std::size_t>(ranks_), Bytes{0});
  }

  std::vector<std::string> run() {
    std::set<std::int64_t> seen;
    for (const TablePlacement& placement : plan_.placements) {
      if (placement.table < 0 || placement.table >= static_cast<std::int64_t>(request_.tables.size())) {
        wrong("a placement names table " + std::to_string(placement.table) + ", which there is not");
      } else if (!seen.insert(placement.table).second) {
        wrong(name(placement) + " is placed twice");
      } else if (check_shape(placement)) {
        add(placement);
      }
    }
    if (seen.size() != request_.tables.size()) {
      wrong(std::to_string(request_.tables.size() - seen.size()) + " tables are not placed");
    }
    if (wrong_.empty()) {
      check_loads();
      check_summary();
    }
    return wrong_;
  }

 private:
  void wrong(const std::string& what) { wrong_.push_back(what); }

  const Table& table_of(const TablePlacement& placement) const {
    return request_.tables[static_cast<std::size_t>(placement.table)];
  }
  std::string name(const TablePlacement& placement) const { return "table " + table_of(placement).name; }

  // True when the intervals, in any order, cover [0, end) once.
  static bool covers(std::vector<Interval> intervals, std::int64_t end) {
    std::sort(intervals.begin(), intervals.end());
    std::int64_t at = 0;
    for (const auto& [from, to] : intervals) {
      if (from != at || to <= from) {
        return false;
      }
      at = to;
    }
    return at == end;
  }

  // Shards in range, and each row and column there exactly once (data-parallel: once a rank).
  bool check_shape(const TablePlacement& placement) {
    const Table& table = table_of(placement);
    const std::size_t before = wrong_.size();
    std::vector<Interval> rows;
    std::vector<Interval> columns;
    std::set<std::int64_t> ranks;
    bool all_rows = true;
    bool all_columns = true;
    for (const Shard& shard : placement.shards) {
      if (shard.rank < 0 || shard.rank >= ranks_) {
        wrong(name(placement) + " has a shard on rank " + std::to_string(shard.rank) + " of " +
              std::to_string(ranks_));
      }
      ranks.insert(shard.rank);
      rows.emplace_back(shard.row_begin, shard.row_end);
      columns.emplace_back(shard.column_begin, shard.column_end);
      all_rows = all_rows && rows.back() == Interval(0, table.rows);
      all_columns = all_columns && columns.back() == Interval(0, table.dim);
    }
    bool whole = false;
    switch (placement.type) {
      case ShardingType::kDataParallel:
        whole = all_rows && all_columns && ranks.size() == static_cast<std::size_t>(ranks_) &&
                placement.shards.size() == ranks.size();
        break;
      case ShardingType::kTableWise: whole = all_rows && all_columns && placement.shards.size() == 1; break;
      case ShardingType::kColumnWise:
      case ShardingType::kTableColumnWise: whole = all_rows && covers(columns, table.dim); break;
      case ShardingType::kRowWise:
        whole = all_columns && covers(rows, table.rows) && in_blocks(placement, 0, ranks_);
        break;
      case ShardingType::kTableRowWise:
      case ShardingType::kGrid:
        whole = all_columns && covers(rows, table.rows) &&
                in_blocks(placement, placement.shards.front().rank / host_ * host_, host_);
        break;
    }
    if (!whole) {
      wrong(name(placement) + " is not there exactly once (" + name_of(placement.type) + ")");
    }
    return wrong_.size() == before;
  }

  // Row blocks of equal size but for the last, in the order of `count` ranks from `first` on.
  bool in_blocks(const TablePlacement& placement, std::int64_t first, std::int64_t count) const {
    const std::int64_t rows = table_of(placement).rows;
    const std::int64_t block = rows / count + (rows % count == 0 ? 0 : 1);
    return std::all_of(placement.shards.begin(), placement.shards.end(), [&](const Shard& shard) {
      const std::int64_t index = shard.rank - first;
      return index >= 0 && index < count && shard.row_begin == index * block &&
             shard.row_end == std::min(rows, shard.row_begin + block);
    });
  }

  void load(std::int64_t rank, double milliseconds) { ms_[static_cast<std::size_t>(rank)] += milliseconds; }

  void add(const TablePlacement& placement) {
    const Table& table = table_of(placement);
    for (const Shard& shard : placement.shards) {
      bytes_[static_cast<std::size_t>(shard.rank)] += held(table, placement.type, shard);
      if (placement.type != ShardingType::kRowWise && placement.type != ShardingType::kTableRowWise) {
        load(shard.rank, time(table, placement.type, shard.column_end - shard.column_begin));
      }
    }
    // The ranks of a row-wise exchange take part whether or not they hold rows.
    if (placement.type == ShardingType::kRowWise) {
      for (std::int64_t rank = 0; rank < ranks_; ++rank) {
        load(rank, time(table, placement.type, table.dim));
      }
    }
    if (placement.type == ShardingType::kTableRowWise) {
      const std::int64_t first = placement.shards.front().rank / host_ * host_;
      for (std::int64_t rank = first; rank < first + host_; ++rank) {
        load(rank, time(table, placement.type, table.dim));
      }
    }
  }

  Bytes held(const Table& table, ShardingType type, const Shard& shard) const {
    const std::int64_t rows = shard.row_end - shard.row_begin;
    const std::int64_t columns = shard.column_end - shard.column_begin;
    const double batch = static_cast<double>(request_.batch_size);
    const double indices = table.lookups_per_sample * batch;
    const double pooled = std::min(1.0, table.lookups_per_sample) * batch;
    // Whose batches a rank reads indices of, and whose it makes outputs for.
    double readers = static_cast<double>(ranks_);
    double writers = static_cast<double>(ranks_);
    if (type == ShardingType::kDataParallel) {
      readers = writers = 1;
    } else if (type == ShardingType::kRowWise) {
      readers = 1;
    } else if (type == ShardingType::kTableRowWise) {
      readers = static_cast<double>(hosts_);
    }
    const Bytes weights = Bytes{rows} * columns * table.element_bytes;
    return weights + optimizer_state(weights, table.dim) + Bytes::ceil(indices * readers * 8) +
           Bytes::ceil(pooled * writers * static_cast<double>(columns * table.element_bytes));
  }

  Bytes optimizer_state(Bytes weights, std::int64_t dim) const {
    switch (request_.optimizer) {
      case crds::Optimizer::kSGD: return Bytes{0};
      case crds::Optimizer::kRowWiseAdagrad: {  // one number a row, shared out over the columns
        const Bytes whole{weights.count / dim};
        return weights.count % dim == 0 ? whole : whole + Bytes{1};
      }
      case crds::Optimizer::kMomentum:
      case crds::Optimizer::kAdagrad:
      case crds::Optimizer::kRMSprop: return weights;
      case crds::Optimizer::kAdam:
      case crds::Optimizer::kAdamW:
      case crds::Optimizer::kLAMB: return weights + weights;
      case crds::Optimizer::kAdafactor:  // the API refuses both for tables
      case crds::Optimizer::kAdam8bit: break;
    }
    return Bytes{0};
  }

  // Milliseconds of one iteration: kernels forward and twice that backward, exchanges, and what goes with
  // them.
  double time(const Table& table, ShardingType type, std::int64_t columns) const {
    const double hbm = static_cast<double>(request_.topology.hbm_bandwidth.count) / 1e3;
    const double nvlink = static_cast<double>(request_.topology.intra_node_bandwidth.count) / 1e3;
    const double network = static_cast<double>(request_.topology.inter_node_bandwidth.count) / 1e3;
    const double all = static_cast<double>(ranks_);
    const double batch = static_cast<double>(request_.batch_size);
    const double indices = table.lookups_per_sample * batch;
    const double pooled = std::min(1.0, table.lookups_per_sample) * batch;
    const double element = static_cast<double>(table.element_bytes);
    const double row = static_cast<double>(columns) * element;
    const double link = hosts_ > 1 ? network : nvlink;
    const double copied = 2.455 * pooled * all * row / hbm;
    switch (type) {
      case ShardingType::kTableWise:
      case ShardingType::kColumnWise:
      case ShardingType::kTableColumnWise: {
        const double penalty = columns < 64 ? 1.75 : columns < 128 ? 1.15 : 1.0;
        const double read =
            indices * all * element * static_cast<double>(std::max<std::int64_t>(columns, 32));
        const double kernel = penalty * (std::ceil(8 * indices * all) + read + pooled * all * row) / hbm;
        return kernel + 2 * kernel + pooled * all * row / link + pooled * all * row / link;
      }
      case ShardingType::kRowWise: {
        const double kernel = (std::ceil(8 * indices) + indices * row + pooled * all * row) / hbm;
        return kernel + 2 * kernel + 2 * pooled * all * row / link + copied;
      }
      case ShardingType::kTableRowWise:
      case ShardingType::kGrid: {
        const double hosts = static_cast<double>(hosts_);
        const double kernel =
            (std::ceil(8 * indices * hosts) + indices * hosts * row + pooled * all * row) / hbm;
        const double across = hosts_ > 1 ? pooled * hosts * row / network : 0;
        return kernel + 2 * kernel + 2 * (pooled * all * row / nvlink + across) + copied;
      }
      case ShardingType::kDataParallel: {
        const double dense = hbm / 2;
        const double kernel = (std::ceil(8 * indices) + indices * row + pooled * row) / dense;
        const double gradient = static_cast<double>(table.rows) * row;
        const double nics = network * static_cast<double>(host_);
        const double ring = hosts_ == 1 ? gradient / nics : 1.5 * gradient / nics;
        return kernel + 2 * kernel + (hosts_ > 2 ? 2 * ring : ring) + 9.22 * gradient / dense;
      }
    }
    return 0;
  }

  void check_loads() {
    if (plan_.ranks.size() != ms_.size()) {
      wrong("loads of " + std::to_string(plan_.ranks.size()) + " ranks for " + std::to_string(ranks_));
      return;
    }
    for (std::size_t rank = 0; rank < ms_.size(); ++rank) {
      const RankLoad& said = plan_.ranks[rank];
      const std::string of = "rank " + std::to_string(rank);
      if (said.memory != bytes_[rank]) {
        wrong(of + " holds " + std::to_string(bytes_[rank].count) + " bytes, the plan says " +
              std::to_string(said.memory.count));
      }
      if (!near(said.milliseconds, ms_[rank])) {
        wrong(of + " takes " + std::to_string(ms_[rank]) + " ms, the plan says " +
              std::to_string(said.milliseconds));
      }
      if (bytes_[rank] > request_.budget) {
        wrong(of + " exceeds its budget by " + to_string(bytes_[rank] - request_.budget));
      }
    }
  }

  void check_summary() {
    if (ms_.empty() || plan_.ranks.size() != ms_.size()) {
      return;
    }
    double total_ms = 0;
    double total_bytes = 0;
    std::map<std::int64_t, Bytes> nodes;
    for (std::size_t rank = 0; rank < ms_.size(); ++rank) {
      total_ms += ms_[rank];
      total_bytes += static_cast<double>(bytes_[rank].count);
      nodes[static_cast<std::int64_t>(rank) / host_] += bytes_[rank];
    }
    Bytes fullest_node;
    for (const auto& [node, bytes] : nodes) {
      fullest_node = std::max(fullest_node, bytes);
    }
    const double slowest = *std::max_element(ms_.begin(), ms_.end());
    const double all = static_cast<double>(ranks_);
    if (!near(plan_.max_milliseconds, slowest) || !near(plan_.mean_milliseconds, total_ms / all)) {
      wrong("the plan's times are not the largest and the mean of its ranks");
    }
    if (plan_.max_memory != *std::max_element(bytes_.begin(), bytes_.end()) ||
        !near(static_cast<double>(plan_.mean_memory.count), std::ceil(total_bytes / all))) {
      wrong("the plan's memory is not the largest and the mean of its ranks");
    }
    if (plan_.node_max_memory != fullest_node ||
        !near(static_cast<double>(plan_.node_mean_memory.count),
              std::ceil(total_bytes / static_cast<double>(hosts_)))) {
      wrong("the plan's node memory is not the largest and the mean of its nodes");
    }
    if (plan_.lower_bound_milliseconds > slowest * (1 + kTolerance)) {
      wrong("the plan is faster than its lower bound");
    }
  }

  const ShardRequest& request_;
  const Plan& plan_;
  std::int64_t ranks_ = 0;
  std::int64_t host_ = 0;
  std::int64_t hosts_ = 0;
  std::vector<double> ms_;
  std::vector<Bytes> bytes_;
  std::vector<std::string> wrong_;
};

}  // namespace

std::vector<std::string> verify(const ShardRequest& request, const Plan& plan) {
  const Topology& topology = request.topology;
  if (topology.trainers < 1 || topology.per_node < 1 ||
      (topology.trainers > topology.per_node && topology.trainers % topology.per_node != 0)) {
    return {"the request's topology cannot be"};
  }
  return Verifier(request, plan).run();
}

}  // namespace plimsoll::estimator
