#include "estimator/sharder/options.h"

#include <algorithm>
#include <limits>

#include "estimator/sharder/request.h"

namespace plimsoll::estimator::inline sharder {

namespace {

// Finer cuts cost more in indices than they gain in balance.
constexpr std::int64_t kMaxCuts = 64;
constexpr std::int64_t kMinColumns = 16;
// Of one table: column-wise, grid, and the types without cuts, each with three kernels.
constexpr std::size_t kMaxOptions = 3 * (2 * kMaxCuts + 4);
// FBGEMM's kernels read rows in vectors of four elements.
constexpr std::int64_t kColumnStep = 4;

// What a table's constraint allows.
struct Freedom {
  unsigned types = ~0U;    // a bit for each ShardingType
  std::int64_t ranks = 0;  // that may hold a shard
  std::int64_t nodes = 0;  // of which all ranks may

  bool any_type() const { return types == ~0U; }
  bool allows(ShardingType type) const { return (types >> static_cast<unsigned>(type) & 1U) != 0; }
};

Freedom freedom_of(const Constraint& constraint, const CostModel& model) {
  Freedom freedom{.ranks = model.trainers, .nodes = model.nodes};
  if (!constraint.types.empty()) {
    freedom.types = 0;
    for (const ShardingType type : constraint.types) {
      freedom.types |= 1U << static_cast<unsigned>(type);
    }
  }
  if (!constraint.ranks.empty()) {
    const RankSet set(constraint.ranks, model.trainers);
    freedom.ranks = static_cast<std::int64_t>(set.in(0, model.trainers).size());
    freedom.nodes = static_cast<std::int64_t>(set.whole_nodes(model.local).size());
  }
  return freedom;
}

Option make_option(const CostModel& model, const TableCost& cost, const Table& table, ShardingType type,
                   Kernel kernel, std::int64_t cuts) {
  Option option{.type = type, .kernel = kernel, .cuts = static_cast<std::int32_t>(cuts)};
  const std::int64_t columns = table.dim / cuts;
  const StageTimes times = cost.times(type, kernel, columns);
  const std::int64_t rows = cost.row_block(type);
  const Held held = cost.held(type, kernel, rows, columns);
  const Held last = cost.held(type, kernel, table.rows % rows, columns);  // shorter than the others
  const std::int64_t full_blocks = table.rows / rows;
  const double row_blocks = static_cast<double>(full_blocks);
  const double ranks = static_cast<double>(option.ranks_per_block(model));
  const double copies = type == ShardingType::kDataParallel ? ranks : static_cast<double>(cuts);
  option.ms = times.total();
  option.compute_ms = times.compute();
  option.bytes = static_cast<double>(held.card.count);
  option.host_bytes = static_cast<double>(held.host.count);
  option.total_ms = option.ms * ranks * static_cast<double>(cuts);
  option.total_bytes = (option.bytes * row_blocks + static_cast<double>(last.card.count)) * copies;
  option.total_host = (option.host_bytes * row_blocks + static_cast<double>(last.host.count)) * copies;
  return option;
}

// Of all options of a table, fitting or not.
struct Extremes {
  Option smallest{.cuts = 0, .bytes = std::numeric_limits<double>::infinity()};  // shard
  double lightest = std::numeric_limits<double>::infinity();                     // bytes on all GPUs
};

// Appends the table's options that fit.
Extremes add_options(const CostModel& model, const MemoryLimits& limits, const Table& table,
                     const Freedom& freedom, std::vector<Option>* all) {
  const TableCost cost(model, table);
  Extremes found;
  const auto offer = [&](ShardingType type, Kernel kernel, std::int64_t cuts) {
    const Option made = make_option(model, cost, table, type, kernel, cuts);
    if (made.bytes <= limits.gpu && made.host_bytes <= limits.host) {
      all->push_back(made);
    }
    if (made.bytes < found.smallest.bytes && (made.host_bytes <= limits.host || found.smallest.cuts == 0)) {
      found.smallest = made;
    }
    found.lightest = std::min(found.lightest, made.total_bytes);
  };
  const auto offer_fused = [&](ShardingType type, std::int64_t cuts) {
    offer(type, Kernel::kFused, cuts);
    if (limits.host > 0) {
      offer(type, Kernel::kHostCached, cuts);
      offer(type, Kernel::kHost, cuts);
    }
  };
  const auto offer_cuts = [&](ShardingType type, std::int64_t least, std::int64_t most) {
    for (std::int64_t cuts = least; cuts <= std::min({table.dim / kMinColumns, most, kMaxCuts}); ++cuts) {
      if (table.dim % (cuts * kColumnStep) == 0) {
        offer_fused(type, cuts);
      }
    }
  };
  const bool whole = freedom.allows(ShardingType::kTableWise);
  // Kernels need not support shards without rows (FBGEMM's CPU kernels crash): only where a constraint asks
  // for the type.
  const auto fills = [&](ShardingType type, std::int64_t ranks) {
    return !freedom.any_type() || cost.rows_of(type, ranks - 1) > 0;
  };
  const bool by_rows = freedom.allows(ShardingType::kRowWise) && freedom.ranks == model.trainers &&
                       fills(ShardingType::kRowWise, model.trainers);
  const bool in_nodes = freedom.nodes > 0 && fills(ShardingType::kTableRowWise, model.local);
  const bool by_node_rows = freedom.allows(ShardingType::kTableRowWise) && in_nodes;
  if (whole) {
    offer_fused(ShardingType::kTableWise, 1);
  }
  // On one trainer all types are equal; on one node, the two row-wise types are.
  if (freedom.allows(ShardingType::kDataParallel) && freedom.ranks == model.trainers &&
      (model.trainers > 1 || !whole)) {
    offer(ShardingType::kDataParallel, Kernel::kDense, 1);
  }
  if (by_rows && (model.trainers > 1 || !whole)) {
    offer_fused(ShardingType::kRowWise, 1);
  }
  if (by_node_rows && (model.nodes > 1 || !(by_rows || whole))) {
    offer_fused(ShardingType::kTableRowWise, 1);
  }
  // One column block is the whole table: an option only where the plain type is not allowed.
  const auto one_block = [&](ShardingType type, bool plain) {
    if (!plain && freedom.allows(type)) {
      offer_fused(type, 1);
    }
  };
  if (freedom.allows(ShardingType::kColumnWise)) {
    one_block(ShardingType::kColumnWise, whole);
    offer_cuts(ShardingType::kColumnWise, 2, freedom.ranks);
  } else if (freedom.allows(ShardingType::kTableColumnWise)) {  // of equal cost, with fewer placements
    one_block(ShardingType::kTableColumnWise, whole);
    offer_cuts(ShardingType::kTableColumnWise, 2, std::min(freedom.ranks, model.local));
  }
  if (freedom.allows(ShardingType::kGrid) && in_nodes) {
    one_block(ShardingType::kGrid, whole || by_node_rows || by_rows);
    offer_cuts(ShardingType::kGrid, 2, freedom.nodes);
  }
  return found;
}

}  // namespace

MemoryLimits::MemoryLimits(const ShardRequest& request)
    : host(static_cast<double>(request.host_budget.count)) {
  const auto capped = [](Bytes budget) {
    return std::min(static_cast<double>(budget.count), kLargestBudget);
  };
  if (request.budgets.empty()) {
    gpu = capped(request.budget);
    all_gpus = gpu * static_cast<double>(request.topology.trainers);
    return;
  }
  for (const Bytes budget : request.budgets) {
    gpu = std::max(gpu, capped(budget));
    all_gpus += capped(budget);
  }
  for (const Bytes budget : request.budgets) {
    shortfall.push_back(gpu - capped(budget));
  }
}

Options::Options(const ShardRequest& request) : memory_(request.work_budget) {
  const BudgetCause cause(request.work_budget,
                          {"spec.model.dlrm.tables", static_cast<std::int64_t>(request.tables.size())});
  const CostModel model(request);
  const MemoryLimits limits(request);
  const Freedom free = freedom_of({}, model);
  const std::vector<const Constraint*> constraints = constraints_by_table(request);
  // Of one table in first_ and smallest_, and as much again for a selection; and in lightest_.
  constexpr std::int64_t kBytesPerTable = 2 * (sizeof(Option) + sizeof(std::size_t)) + sizeof(double);
  const Bytes fixed = Bytes{kBytesPerTable} * static_cast<std::int64_t>(request.tables.size());
  const auto reserve = [&](std::size_t options) {
    memory_.resize(fixed + Bytes{sizeof(Option)} * static_cast<std::int64_t>(options));
    all_.reserve(options);
  };
  constexpr std::size_t kUsualOptions = 12;
  reserve(request.tables.size() * kUsualOptions);
  first_.reserve(request.tables.size() + 1);
  smallest_.reserve(request.tables.size());
  lightest_.reserve(request.tables.size());
  first_.push_back(0);
  for (std::size_t table = 0; table < request.tables.size(); ++table) {
    const Constraint* constraint = constraints.empty() ? nullptr : constraints[table];
    if (all_.capacity() - all_.size() < kMaxOptions) {
      reserve(2 * all_.capacity() + kMaxOptions);
    }
    const Extremes found = add_options(model, limits, request.tables[table],
                                       constraint == nullptr ? free : freedom_of(*constraint, model), &all_);
    smallest_.push_back(found.smallest);
    lightest_.push_back(found.lightest);
    charge(request.work_budget, all_.size() - first_.back() + 1);
    first_.push_back(all_.size());
  }
  for (const Option& option : all_) {
    if (!option.everywhere()) {
      longest_ms_ = std::max(longest_ms_, option.ms);
      longest_compute_ = std::max(longest_compute_, option.compute_ms);
    }
  }
}

}  // namespace plimsoll::estimator::sharder
