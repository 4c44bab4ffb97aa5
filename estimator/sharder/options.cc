#include "estimator/sharder/options.h"

#include <algorithm>
#include <limits>

#include "estimator/sharder/request.h"

namespace plimsoll::estimator::inline sharder {

namespace {

// Finer cuts than these cost more in indices than they gain in balance.
constexpr std::int64_t kMaxCuts = 64;
constexpr std::int64_t kMinColumns = 16;
// Of a table: by columns, by columns on nodes, and the types without cuts, each with three kernels.
constexpr std::size_t kMaxOptions = 3 * (2 * kMaxCuts + 4);
// FBGEMM's kernels read rows in vectors of four elements.
constexpr std::int64_t kColumnStep = 4;

// What a constraint leaves of a table's ways.
struct Freedom {
  unsigned types = ~0U;    // a bit for each ShardingType
  std::int64_t ranks = 0;  // that may hold a shard
  std::int64_t nodes = 0;  // all of whose ranks may

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
    freedom.ranks = set.count();
    freedom.nodes = 0;
    for (std::int64_t node = 0; node < model.nodes; ++node) {
      freedom.nodes += set.holds_all(node * model.local, model.local) ? 1 : 0;
    }
  }
  return freedom;
}

class Builder {
 public:
  Builder(const CostModel& model, const Room& room) : model_(model), room_(room) {}

  // Appends the table's options that fit; the smallest of all comes back.
  Option add(const Table& table, const Freedom& freedom, std::vector<Option>* all) const;

 private:
  Option option(const TableCost& cost, const Table& table, ShardingType type, Kernel kernel,
                std::int64_t cuts) const;

  const CostModel& model_;
  const Room& room_;
};

Option Builder::option(const TableCost& cost, const Table& table, ShardingType type, Kernel kernel,
                       std::int64_t cuts) const {
  Option option{.type = type, .kernel = kernel, .cuts = static_cast<std::int32_t>(cuts)};
  const std::int64_t columns = table.dim / cuts;
  const StageTimes times = cost.times(type, kernel, columns);
  option.ms = times.total();
  option.compute_ms = times.compute();
  const std::int64_t block = cost.row_block(type);
  const Held held = cost.held(type, kernel, block, columns);
  option.bytes = static_cast<double>(held.card.count);
  option.host_bytes = static_cast<double>(held.host.count);
  const double parts = static_cast<double>(cuts);
  if (type == ShardingType::kDataParallel) {
    const double trainers = static_cast<double>(model_.trainers);
    option.total_ms = option.ms * trainers;
    option.total_bytes = option.bytes * trainers;
    return option;
  }
  if (type != ShardingType::kRowWise && !option.on_nodes()) {  // all rows in each shard
    option.total_ms = option.ms * parts;
    option.total_bytes = option.bytes * parts;
    option.total_host = option.host_bytes * parts;
    return option;
  }
  const std::int64_t ranks = type == ShardingType::kRowWise ? model_.trainers : model_.local;
  const Held last = cost.held(type, kernel, table.rows % block, columns);
  const double blocks = static_cast<double>(table.rows / block);
  option.total_ms = option.ms * static_cast<double>(ranks) * parts;
  option.total_bytes = (option.bytes * blocks + static_cast<double>(last.card.count)) * parts;
  option.total_host = (option.host_bytes * blocks + static_cast<double>(last.host.count)) * parts;
  return option;
}

Option Builder::add(const Table& table, const Freedom& freedom, std::vector<Option>* all) const {
  const TableCost cost(model_, table);
  Option smallest{.cuts = 0, .bytes = std::numeric_limits<double>::infinity()};
  const auto offer = [&](ShardingType type, Kernel kernel, std::int64_t cuts) {
    const Option made = option(cost, table, type, kernel, cuts);
    if (made.bytes <= room_.largest && made.host_bytes <= room_.host) {
      all->push_back(made);
    }
    if (made.bytes < smallest.bytes && (made.host_bytes <= room_.host || smallest.cuts == 0)) {
      smallest = made;
    }
  };
  const auto offer_fused = [&](ShardingType type, std::int64_t cuts) {
    offer(type, Kernel::kFused, cuts);
    if (room_.host > 0) {
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
  // Shards without rows are nothing that a kernel need be ready for (FBGEMM's on a CPU crash): only where
  // asked.
  const auto fills = [&](ShardingType type, std::int64_t ranks) {
    return !freedom.any_type() || cost.rows_of(type, ranks - 1) > 0;
  };
  const bool by_rows = freedom.allows(ShardingType::kRowWise) && freedom.ranks == model_.trainers &&
                       fills(ShardingType::kRowWise, model_.trainers);
  const bool in_nodes = freedom.nodes > 0 && fills(ShardingType::kTableRowWise, model_.local);
  const bool by_node_rows = freedom.allows(ShardingType::kTableRowWise) && in_nodes;
  if (whole) {
    offer_fused(ShardingType::kTableWise, 1);
  }
  // On one trainer all types are one; on one node, the two by rows.
  if (freedom.allows(ShardingType::kDataParallel) && freedom.ranks == model_.trainers &&
      (model_.trainers > 1 || !whole)) {
    offer(ShardingType::kDataParallel, Kernel::kDense, 1);
  }
  if (by_rows && (model_.trainers > 1 || !whole)) {
    offer_fused(ShardingType::kRowWise, 1);
  }
  if (by_node_rows && (model_.nodes > 1 || !(by_rows || whole))) {
    offer_fused(ShardingType::kTableRowWise, 1);
  }
  // A cut into one block is the table whole; it counts where the plain type is not allowed.
  const auto one_block = [&](ShardingType type, bool plain) {
    if (!plain && freedom.allows(type)) {
      offer_fused(type, 1);
    }
  };
  if (freedom.allows(ShardingType::kColumnWise)) {
    one_block(ShardingType::kColumnWise, whole);
    offer_cuts(ShardingType::kColumnWise, 2, freedom.ranks);
  } else if (freedom.allows(ShardingType::kTableColumnWise)) {  // else the more confined of two equals
    one_block(ShardingType::kTableColumnWise, whole);
    offer_cuts(ShardingType::kTableColumnWise, 2, std::min(freedom.ranks, model_.local));
  }
  if (freedom.allows(ShardingType::kGrid) && in_nodes) {
    one_block(ShardingType::kGrid, whole || by_node_rows || by_rows);
    offer_cuts(ShardingType::kGrid, 2, freedom.nodes);
  }
  return smallest;
}

}  // namespace

Room::Room(const ShardRequest& request) : host(static_cast<double>(request.host_budget.count)) {
  const auto capped = [](Bytes budget) {
    return std::min(static_cast<double>(budget.count), kLargestBudget);
  };
  if (request.budgets.empty()) {
    largest = capped(request.budget);
    total = largest * static_cast<double>(request.topology.trainers);
    return;
  }
  for (const Bytes budget : request.budgets) {
    largest = std::max(largest, capped(budget));
    total += capped(budget);
  }
  for (const Bytes budget : request.budgets) {
    shortfall.push_back(largest - capped(budget));
  }
}

Options::Options(const ShardRequest& request) : memory_(request.work_budget) {
  const BudgetCause cause(request.work_budget,
                          {"spec.model.dlrm.tables", static_cast<std::int64_t>(request.tables.size())});
  const CostModel model(request);
  const Room room(request);
  const Builder builder(model, room);
  const Freedom free = freedom_of({}, model);
  const std::vector<const Constraint*> constraints = constraints_by_table(request);
  // Of a table: its places in first_ and smallest_, and as much for what a selection holds of it.
  constexpr std::int64_t kBytesPerTable = 2 * (sizeof(Option) + sizeof(std::size_t));
  const Bytes fixed = Bytes{kBytesPerTable} * static_cast<std::int64_t>(request.tables.size());
  const auto make_room = [&](std::size_t options) {
    memory_.resize(fixed + Bytes{sizeof(Option)} * static_cast<std::int64_t>(options));
    all_.reserve(options);
  };
  constexpr std::size_t kUsualOptions = 12;
  make_room(request.tables.size() * kUsualOptions);
  first_.reserve(request.tables.size() + 1);
  smallest_.reserve(request.tables.size());
  first_.push_back(0);
  for (std::size_t table = 0; table < request.tables.size(); ++table) {
    const Constraint* constraint = constraints.empty() ? nullptr : constraints[table];
    if (all_.capacity() - all_.size() < kMaxOptions) {
      make_room(2 * all_.capacity() + kMaxOptions);
    }
    smallest_.push_back(builder.add(request.tables[table],
                                    constraint == nullptr ? free : freedom_of(*constraint, model), &all_));
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
