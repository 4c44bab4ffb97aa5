#include "estimator/sharder/verify.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace plimsoll::estimator::inline sharder {
namespace {

using Interval = std::pair<std::int64_t, std::int64_t>;

// Double sums of thousands of terms in different orders agree to this.
constexpr double kTolerance = 1e-9;

bool near(double a, double b) {
  return std::abs(a - b) <= kTolerance * std::max({std::abs(a), std::abs(b), 1e-9});
}

bool near(const StageTimes& a, const StageTimes& b) {
  return near(a.forward_compute, b.forward_compute) && near(a.forward_exchange, b.forward_exchange) &&
         near(a.backward_compute, b.backward_compute) && near(a.backward_exchange, b.backward_exchange);
}

// True when the intervals, in any order, cover [0, end) once.
bool covers(std::vector<Interval> intervals, std::int64_t end) {
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

// True when `ranks` is empty, which allows all, or contains the rank.
bool allows(const std::vector<std::int64_t>& ranks, std::int64_t rank) {
  return ranks.empty() || std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

class Verifier {
 public:
  Verifier(const ShardRequest& request, const Plan& plan) : request_(request), plan_(plan) {
    ranks_ = request.topology.trainers;
    host_ = std::min(request.topology.per_node, ranks_);
    hosts_ = ranks_ / host_;
    loads_.resize(static_cast<std::size_t>(ranks_));
  }

  std::vector<std::string> run() {
    std::set<std::int64_t> seen;
    for (const TablePlacement& placement : plan_.placements) {
      if (placement.table < 0 || placement.table >= static_cast<std::int64_t>(request_.tables.size())) {
        wrong("a placement names table " + std::to_string(placement.table) + ", which does not exist");
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

  // Shards in range, and each row and column there exactly once (data-parallel: once a rank), as the type
  // says.
  bool check_shape(const TablePlacement& placement) {
    const Table& table = table_of(placement);
    const std::size_t before = wrong_.size();
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
      columns.emplace_back(shard.column_begin, shard.column_end);
      all_rows = all_rows && shard.row_begin == 0 && shard.row_end == table.rows;
      all_columns = all_columns && columns.back() == Interval(0, table.dim);
    }
    const auto whole = [&] {
      if (placement.shards.empty() || placement.type == ShardingType::kDataParallel) {
        return placement.shards.empty() && placement.type == ShardingType::kDataParallel;
      }
      switch (placement.type) {
        case ShardingType::kDataParallel: break;  // above: every rank has all of it, and none is listed
        case ShardingType::kTableWise: return all_rows && all_columns && placement.shards.size() == 1;
        case ShardingType::kColumnWise: return all_rows && covers(columns, table.dim);
        case ShardingType::kTableColumnWise:
          return all_rows && covers(columns, table.dim) && *ranks.begin() / host_ == *ranks.rbegin() / host_;
        case ShardingType::kRowWise: return all_columns && in_blocks(placement.shards, table, 0, ranks_);
        case ShardingType::kTableRowWise: return all_columns && on_one_node(placement.shards, table);
        case ShardingType::kGrid: return in_grid(placement, table);
      }
      return false;
    };
    if (!whole()) {
      wrong(name(placement) + " is not covered exactly once (" + name_of(placement.type) + ")");
    }
    if ((placement.type == ShardingType::kDataParallel) != (placement.kernel == Kernel::kDense)) {
      wrong(name(placement) + " cannot be " + name_of(placement.type) + " with kernel " +
            name_of(placement.kernel));
    }
    check_constraint(placement, ranks);
    return wrong_.size() == before;
  }

  void check_constraint(const TablePlacement& placement, const std::set<std::int64_t>& ranks) {
    for (const Constraint& constraint : request_.constraints) {
      if (constraint.table != placement.table) {
        continue;
      }
      const auto& types = constraint.types;
      if (!types.empty() && std::find(types.begin(), types.end(), placement.type) == types.end()) {
        wrong(name(placement) + " is " + name_of(placement.type) + ", which its constraint does not allow");
      }
      for (std::int64_t rank = 0; rank < ranks_; ++rank) {
        const bool held = placement.type == ShardingType::kDataParallel || ranks.contains(rank);
        if (held && !allows(constraint.ranks, rank)) {
          wrong(name(placement) + " has a shard on rank " + std::to_string(rank) +
                ", which its constraint does not allow");
        }
      }
    }
  }

  // All rows once, in blocks over the ranks of one node.
  bool on_one_node(const std::vector<Shard>& shards, const Table& table) const {
    return in_blocks(shards, table, shards.front().rank / host_ * host_, host_);
  }

  // Column blocks that cover the table, each by rows on one node.
  bool in_grid(const TablePlacement& placement, const Table& table) const {
    std::map<Interval, std::vector<Shard>> blocks;
    for (const Shard& shard : placement.shards) {
      blocks[{shard.column_begin, shard.column_end}].push_back(shard);
    }
    std::vector<Interval> columns;
    for (const auto& [block, shards] : blocks) {
      columns.push_back(block);
      if (!on_one_node(shards, table)) {
        return false;
      }
    }
    return covers(columns, table.dim);
  }

  // All rows once, in blocks of equal size except the last, in the order of `count` ranks from `first` on.
  static bool in_blocks(const std::vector<Shard>& shards, const Table& table, std::int64_t first,
                        std::int64_t count) {
    const std::int64_t block = table.rows / count + (table.rows % count == 0 ? 0 : 1);
    std::vector<Interval> rows;
    for (const Shard& shard : shards) {
      const std::int64_t index = shard.rank - first;
      if (index < 0 || index >= count || shard.row_begin != index * block ||
          shard.row_end != std::min(table.rows, shard.row_begin + block)) {
        return false;
      }
      rows.emplace_back(shard.row_begin, shard.row_end);
    }
    return covers(std::move(rows), table.rows);
  }

  void add(const TablePlacement& placement) {
    const Table& table = table_of(placement);
    std::vector<Shard> shards = placement.shards;
    if (placement.type == ShardingType::kDataParallel) {
      for (std::int64_t rank = 0; rank < ranks_; ++rank) {
        shards.push_back({.rank = rank, .row_end = table.rows, .column_end = table.dim});
      }
    }
    // A rank takes the time of a block of columns once, whatever the number of its rows.
    std::set<std::pair<std::int64_t, Interval>> taking_part;  // rank, columns
    for (const Shard& shard : shards) {
      hold(table, placement, shard, &loads_[static_cast<std::size_t>(shard.rank)]);
      // The ranks of an exchange by rows take part even if they hold no rows.
      std::int64_t first = shard.rank;
      std::int64_t last = shard.rank;
      if (placement.type == ShardingType::kRowWise) {
        first = 0;
        last = ranks_ - 1;
      } else if (placement.type == ShardingType::kTableRowWise || placement.type == ShardingType::kGrid) {
        first = shard.rank / host_ * host_;
        last = first + host_ - 1;
      }
      for (std::int64_t rank = first; rank <= last; ++rank) {
        taking_part.emplace(rank, Interval(shard.column_begin, shard.column_end));
      }
    }
    for (const auto& [rank, columns] : taking_part) {
      loads_[static_cast<std::size_t>(rank)].stages += time(table, placement, columns.second - columns.first);
    }
  }

  bool stages() const { return request_.cost == CostMethod::kStages; }
  bool allocated() const { return stages() || request_.allocated_bytes; }

  // Pooled rows of a table for one rank's batch: of every sample, or of those with a lookup.
  double pooled_rows(const Table& table, bool of_all) const {
    const double batch = static_cast<double>(request_.batch_size);
    if (!table.pooled) {
      return table.lookups_per_sample * batch;
    }
    const double features = static_cast<double>(table.features);
    return batch * (of_all ? features : std::min(features, table.lookups_per_sample));
  }

  void hold(const Table& table, const TablePlacement& placement, const Shard& shard, RankLoad* load) const {
    const std::int64_t rows = shard.row_end - shard.row_begin;
    const std::int64_t columns = shard.column_end - shard.column_begin;
    const double indices = table.lookups_per_sample * static_cast<double>(request_.batch_size);
    // The number of ranks whose indices a rank reads, and for which it makes outputs.
    double readers = static_cast<double>(ranks_);
    double writers = static_cast<double>(ranks_);
    switch (placement.type) {
      case ShardingType::kDataParallel: readers = writers = 1; break;
      case ShardingType::kRowWise: readers = 1; break;
      case ShardingType::kTableRowWise:
      case ShardingType::kGrid: readers = static_cast<double>(hosts_); break;
      default: break;
    }
    const Bytes input = Bytes::ceil(indices * readers * 8);
    const Bytes output = Bytes::ceil(pooled_rows(table, allocated()) * writers *
                                     static_cast<double>(columns * table.element_bytes));
    const bool cached = placement.kernel == Kernel::kHostCached;
    // Buffers by pipeline: the number of batches of input at once, and whether outputs count.
    Bytes buffers = input + output;
    if (request_.pipeline != Pipeline::kNone) {
      const std::int64_t batches = request_.pipeline == Pipeline::kSparseDist ? 2 : cached ? 10 : 3;
      buffers = input * batches + (request_.embeddings_at_peak ? output : Bytes{0});
    }
    const Bytes weights = Bytes{rows} * columns * table.element_bytes;
    const Bytes state = optimizer_state(table, weights, rows);
    load->weights += weights;
    load->optimizer += state;
    load->memory += buffers;
    if (placement.kernel != Kernel::kHost && !cached) {
      load->memory += weights + state;
      return;
    }
    load->host_memory += weights + state;
    if (cached) {
      const long double whole = static_cast<long double>(table.rows) * static_cast<long double>(table.dim);
      const double table_bytes =
          static_cast<double>((Bytes{table.rows} * table.dim * table.element_bytes).count);
      const long double part = static_cast<long double>(rows) * static_cast<long double>(columns) / whole;
      const Bytes cache = Bytes::ceil(static_cast<double>(
          static_cast<long double>(std::nearbyint(table_bytes * request_.cache_ratio)) * part));
      const std::int64_t cached_rows =
          static_cast<std::int64_t>(std::ceil(static_cast<double>(rows) * request_.cache_ratio));
      load->memory += cache + optimizer_state(table, cache, cached_rows) +
                      Bytes::ceil(static_cast<double>(rows) * (4 + 16 * request_.cache_ratio));
    }
  }

  Bytes optimizer_state(const Table& table, Bytes weights, std::int64_t rows) const {
    double of_each = 0;  // numbers for each weight
    switch (request_.optimizer) {
      case crds::Optimizer::kSGD: return Bytes{0};
      case crds::Optimizer::kRowWiseAdagrad:  // one number a row; torchrec divides it among the columns
        if (allocated()) {
          return Bytes{4 * rows};
        }
        of_each = 1.0 / static_cast<double>(table.dim);
        break;
      case crds::Optimizer::kMomentum:
      case crds::Optimizer::kAdagrad:
      case crds::Optimizer::kRMSprop: of_each = 1; break;
      case crds::Optimizer::kAdam:
      case crds::Optimizer::kAdamW:
      case crds::Optimizer::kLAMB: of_each = 2; break;
      default: return Bytes{0};  // crds::kNotForTables
    }
    if (allocated()) {  // in fp32
      return Bytes{weights.count / table.element_bytes} * (of_each == 2 ? 8 : 4);
    }
    return Bytes::ceil(static_cast<double>(weights.count) * of_each);
  }

  // Milliseconds of one iteration: kernels forward, exchange forward, and both backward.
  StageTimes time(const Table& table, const TablePlacement& placement, std::int64_t columns) const {
    const auto per_ms = [](Bytes bandwidth) { return static_cast<double>(bandwidth.count) / 1e3; };
    const Topology& topology = request_.topology;
    const double hbm = per_ms(topology.hbm_bandwidth);
    const double nvlink = per_ms(topology.intra_node_bandwidth);
    const double network = per_ms(topology.inter_node_bandwidth);
    const double bus = per_ms(topology.host_bandwidth);
    const bool prefetched = request_.pipeline == Pipeline::kPrefetchSparseDist;
    double memory = hbm;
    if (placement.kernel == Kernel::kDense) {
      memory = hbm / 2;
    } else if (placement.kernel == Kernel::kHost) {
      memory = bus / 10;
    } else if (placement.kernel == Kernel::kHostCached && !prefetched) {
      memory = (hbm * request_.cache_ratio + bus * (1 - request_.cache_ratio)) / 10;
    }
    const double all = static_cast<double>(ranks_);
    const double hosts = static_cast<double>(hosts_);
    const double indices = table.lookups_per_sample * static_cast<double>(request_.batch_size);
    const double pooled = pooled_rows(table, stages());
    const double element = static_cast<double>(table.element_bytes);
    const double row = static_cast<double>(columns) * element;
    const double link = hosts_ > 1 ? network : nvlink;
    const double ids = table.weighted ? 2 : 1;         // as many weights as indices
    const double back = table.weighted ? 2 + 1.1 : 2;  // and gradients of these
    double kernel = 0;
    double there = 0;
    double return_trip = 0;
    switch (placement.type) {
      case ShardingType::kTableWise:
      case ShardingType::kColumnWise:
      case ShardingType::kTableColumnWise: {
        const double penalty = columns < 64 ? 1.75 : columns < 128 ? 1.15 : 1.0;
        const double read =
            indices * all * element * static_cast<double>(std::max<std::int64_t>(columns, 32));
        kernel = penalty * (ids * std::ceil(8 * indices * all) + read + pooled * all * row) / memory;
        there = return_trip = pooled * all * row / link;
        break;
      }
      case ShardingType::kRowWise:
        kernel = (ids * std::ceil(8 * indices) + indices * row + pooled * all * row) / memory;
        there = pooled * all * row / link;
        return_trip = there + 2.455 * pooled * all * row / memory;
        break;
      case ShardingType::kTableRowWise:
      case ShardingType::kGrid:
        kernel = (ids * std::ceil(8 * indices * hosts) + indices * hosts * row + pooled * all * row) / memory;
        there = pooled * all * row / nvlink + (hosts_ > 1 ? pooled * hosts * row / network : 0);
        return_trip = there + 2.455 * pooled * all * row / memory;
        break;
      case ShardingType::kDataParallel: {
        kernel = (ids * std::ceil(8 * indices) + indices * row + pooled * row) / memory;
        const double gradient = static_cast<double>(table.rows) * row;
        const double nics = network * static_cast<double>(host_);
        const double ring = hosts_ == 1 ? gradient / nics : 1.5 * gradient / nics;
        return_trip = (hosts_ > 2 ? 2 * ring : ring) + 9.22 * gradient / memory;
        break;
      }
    }
    return {kernel, there, back * kernel, return_trip};
  }

  Bytes budget_of(std::size_t rank) const {
    return request_.budgets.empty() ? request_.budget : request_.budgets[rank];
  }

  void check_loads() {
    if (plan_.ranks.size() != loads_.size()) {
      wrong("loads of " + std::to_string(plan_.ranks.size()) + " ranks for " + std::to_string(ranks_));
      return;
    }
    for (std::size_t rank = 0; rank < loads_.size(); ++rank) {
      const RankLoad& planned = plan_.ranks[rank];
      RankLoad& load = loads_[rank];
      load.milliseconds = load.stages.total();
      const std::string of = "rank " + std::to_string(rank);
      if (planned.memory != load.memory) {
        wrong(of + " holds " + std::to_string(load.memory.count) + " bytes, the plan says " +
              std::to_string(planned.memory.count));
      }
      if (planned.host_memory != load.host_memory || planned.weights != load.weights ||
          planned.optimizer != load.optimizer) {
        wrong(of + " holds " + std::to_string(load.weights.count) + " bytes of tables, " +
              std::to_string(load.optimizer.count) + " of optimizer state, " +
              std::to_string(load.host_memory.count) + " in host memory, and the plan says otherwise");
      }
      if (!near(planned.milliseconds, load.milliseconds)) {
        wrong(of + " takes " + std::to_string(load.milliseconds) + " ms, the plan says " +
              std::to_string(planned.milliseconds));
      }
      if (!near(planned.stages, load.stages)) {
        wrong(of + " has stages that differ from the plan's");
      }
      if (load.memory > budget_of(rank)) {
        wrong(of + " exceeds its budget by " + to_string(load.memory - budget_of(rank)));
      }
      if (load.host_memory > request_.host_budget) {
        wrong(of + " exceeds its budget of host memory by " +
              to_string(load.host_memory - request_.host_budget));
      }
    }
  }

  void check_summary() {
    if (loads_.empty() || plan_.ranks.size() != loads_.size()) {
      return;
    }
    double total_ms = 0;
    double total_bytes = 0;
    double slowest = 0;
    StageTimes critical;
    Bytes fullest;
    std::vector<Bytes> nodes(static_cast<std::size_t>(hosts_));
    for (std::size_t rank = 0; rank < loads_.size(); ++rank) {
      const RankLoad& load = loads_[rank];
      total_ms += load.milliseconds;
      slowest = std::max(slowest, load.milliseconds);
      critical = longest(critical, load.stages);
      total_bytes += static_cast<double>(load.memory.count);
      fullest = std::max(fullest, load.memory);
      nodes[rank / static_cast<std::size_t>(host_)] += load.memory;
    }
    const double all = static_cast<double>(ranks_);
    const double time = stages() ? critical.total() : slowest;
    if (!near(plan_.critical_path, critical)) {
      wrong("the plan's critical path is not that of its ranks");
    }
    if (!near(plan_.max_milliseconds, time) || !near(plan_.mean_milliseconds, total_ms / all)) {
      wrong("the plan's times are not the largest and the mean of its ranks");
    }
    if (plan_.max_memory != fullest ||
        !near(static_cast<double>(plan_.mean_memory.count), std::ceil(total_bytes / all))) {
      wrong("the plan's memory is not the largest and the mean of its ranks");
    }
    if (plan_.node_max_memory != *std::max_element(nodes.begin(), nodes.end()) ||
        !near(static_cast<double>(plan_.node_mean_memory.count),
              std::ceil(total_bytes / static_cast<double>(hosts_)))) {
      wrong("the plan's node memory is not the largest and the mean of its nodes");
    }
    if (plan_.lower_bound_milliseconds > time * (1 + kTolerance)) {
      wrong("the plan is faster than its lower bound");
    }
  }

  const ShardRequest& request_;
  const Plan& plan_;
  std::int64_t ranks_ = 0;
  std::int64_t host_ = 0;
  std::int64_t hosts_ = 0;
  std::vector<RankLoad> loads_;
  std::vector<std::string> wrong_;
};

}  // namespace

std::vector<std::string> verify(const ShardRequest& request, const Plan& plan) {
  const Topology& topology = request.topology;
  if (topology.trainers < 1 || topology.per_node < 1 ||
      (topology.trainers > topology.per_node && topology.trainers % topology.per_node != 0)) {
    return {"the request's topology is not possible"};
  }
  if (!request.budgets.empty() && request.budgets.size() != static_cast<std::size_t>(topology.trainers)) {
    return {"the number of budgets is not that of the trainers"};
  }
  return Verifier(request, plan).run();
}

}  // namespace plimsoll::estimator::sharder
