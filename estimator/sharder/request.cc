#include "estimator/sharder/request.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace plimsoll::estimator::inline sharder {

namespace {

// No table is larger; and up to here no product of two figures exceeds 64 bits or becomes infinite.
constexpr std::int64_t kMaxRows = std::int64_t{1} << 60;
constexpr std::int64_t kMaxColumns = std::int64_t{1} << 24;
constexpr std::int64_t kMaxBatch = std::int64_t{1} << 40;
constexpr std::int64_t kMaxElementBytes = 16;
constexpr std::int64_t kMaxFeatures = 1 << 20;
constexpr double kMaxLookups = 1e12;
constexpr double kMaxSlack = 10;

// Makes a text only for what is wrong: there are thousands of tables, and an admission request waits.
Result<void> within(const char* what, std::int64_t value, std::int64_t most, const Table* table = nullptr) {
  if (value < 1 || value > most) {
    return invalid(what + (table == nullptr ? std::string() : " of table " + table->name) +
                   " must be from 1 to " + std::to_string(most) + ", is " + std::to_string(value));
  }
  return {};
}

Result<void> check_table(const Table& table) {
  for (const auto& [what, value, most] :
       {std::tuple("rows", table.rows, kMaxRows), std::tuple("dim", table.dim, kMaxColumns),
        std::tuple("bytes of an element", table.element_bytes, kMaxElementBytes)}) {
    if (Result<void> checked = within(what, value, most, &table); !checked) {
      return checked;
    }
  }
  if (table.features < 1 || table.features > kMaxFeatures) {
    return within("features", table.features, kMaxFeatures, &table);
  }
  if (!(table.lookups_per_sample >= 0 && table.lookups_per_sample <= kMaxLookups)) {
    return invalid("lookups a sample of table " + table.name + " must be from 0 to 1e12, is " +
                   std::to_string(table.lookups_per_sample));
  }
  return {};
}

}  // namespace

Bytes memory_of(const std::vector<Table>& tables) {
  return Bytes{sizeof(Table)} * static_cast<std::int64_t>(tables.size());
}

Bytes memory_of_expanded(const std::vector<crds::EmbeddingTable>& groups) {
  constexpr std::int64_t kMaxNumber = 8;  // ".199999" and the end
  Bytes sum;
  for (const crds::EmbeddingTable& group : groups) {
    const auto name = static_cast<std::int64_t>(group.name.size()) + kMaxNumber;
    sum += (Bytes{sizeof(Table)} + Bytes{name}) * group.count;
  }
  return sum;
}

std::vector<Table> expand_tables(const std::vector<crds::EmbeddingTable>& groups, Budget* budget) {
  std::vector<Table> tables;
  tables.reserve(groups.size());
  for (const crds::EmbeddingTable& group : groups) {
    charge(budget, static_cast<std::uint64_t>(std::max<std::int64_t>(group.count, 1)));
    for (std::int64_t i = 0; i < group.count; ++i) {
      tables.push_back({.name = group.count == 1 ? group.name : group.name + "." + std::to_string(i),
                        .rows = group.rows,
                        .dim = group.dim,
                        .lookups_per_sample = group.pooling_factor * group.lookup_frequency *
                                              static_cast<double>(group.features),
                        .element_bytes = crds::width_bytes(group.dtype),
                        .pooled = group.sequence_length == 0,
                        .features = group.features});
    }
  }
  return tables;
}

Result<void> check_tables(const ShardRequest& request) {
  if (Result<void> batch = within("batch size", request.batch_size, kMaxBatch); !batch) {
    return batch;
  }
  const Topology& topology = request.topology;
  for (const auto& [what, bandwidth] : {std::pair{"bandwidth within a node", topology.intra_node_bandwidth},
                                        std::pair{"bandwidth between nodes", topology.inter_node_bandwidth},
                                        std::pair{"HBM bandwidth", topology.hbm_bandwidth},
                                        std::pair{"bandwidth to the host", topology.host_bandwidth}}) {
    if (bandwidth.count < 1) {
      return invalid(std::string(what) + " must be at least 1 byte a second, is " +
                     std::to_string(bandwidth.count));
    }
  }
  for (const Table& table : request.tables) {
    if (Result<void> checked = check_table(table); !checked) {
      return checked;
    }
  }
  if (!(request.cache_ratio > 0 && request.cache_ratio <= 1)) {
    return invalid("the cache ratio must be above 0 and at most 1, is " +
                   std::to_string(request.cache_ratio));
  }
  if (!(request.time_slack >= 0 && request.time_slack <= kMaxSlack)) {
    return invalid("the time slack must be from 0 to " + std::to_string(kMaxSlack) + ", is " +
                   std::to_string(request.time_slack));
  }
  if (request.host_budget.count < 0) {
    return invalid("the host's memory for embeddings must not be negative");
  }
  std::vector<bool> constrained(request.tables.size(), false);
  for (const Constraint& constraint : request.constraints) {
    const std::size_t table = static_cast<std::size_t>(constraint.table);
    if (constraint.table < 0 || table >= constrained.size()) {
      return invalid("a constraint names table " + std::to_string(constraint.table) + " of " +
                     std::to_string(constrained.size()));
    }
    if (constrained[table]) {
      return invalid("table " + request.tables[table].name + " has two constraints");
    }
    constrained[table] = true;
  }
  return {};
}

Result<void> check_ranks(const ShardRequest& request) {
  const std::int64_t trainers = request.topology.trainers;
  if (!request.budgets.empty() && request.budgets.size() != static_cast<std::size_t>(trainers)) {
    return invalid("there are budgets of " + std::to_string(request.budgets.size()) + " trainers for " +
                   std::to_string(trainers));
  }
  for (const Constraint& constraint : request.constraints) {
    for (const std::int64_t rank : constraint.ranks) {
      if (rank < 0 || rank >= trainers) {
        return invalid("table " + request.tables[static_cast<std::size_t>(constraint.table)].name +
                       " is pinned to rank " + std::to_string(rank) + " of " + std::to_string(trainers) +
                       " trainers");
      }
    }
  }
  return {};
}

RankSet::RankSet(const std::vector<std::int64_t>& ranks, std::int64_t trainers)
    : held_(static_cast<std::size_t>(trainers), ranks.empty()) {
  for (const std::int64_t rank : ranks) {
    held_[static_cast<std::size_t>(rank)] = true;
  }
}

std::vector<std::int64_t> RankSet::in(std::int64_t first, std::int64_t count) const {
  std::vector<std::int64_t> ranks;
  for (std::int64_t rank = first; rank < first + count; ++rank) {
    if (held_[static_cast<std::size_t>(rank)]) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

std::vector<std::int64_t> RankSet::whole_nodes(std::int64_t per_node) const {
  std::vector<std::int64_t> nodes;
  for (auto node = held_.begin(); node != held_.end(); node += per_node) {
    if (std::find(node, node + per_node, false) == node + per_node) {
      nodes.push_back((node - held_.begin()) / per_node);
    }
  }
  return nodes;
}

std::vector<const Constraint*> constraints_by_table(const ShardRequest& request) {
  std::vector<const Constraint*> by_table;
  if (!request.constraints.empty()) {
    by_table.resize(request.tables.size(), nullptr);
    for (const Constraint& constraint : request.constraints) {
      by_table[static_cast<std::size_t>(constraint.table)] = &constraint;
    }
  }
  return by_table;
}

Result<void> check_trainers(const Topology& topology) {
  if (Result<void> trainers = within("trainers", topology.trainers, kMaxTrainers); !trainers) {
    return trainers;
  }
  if (Result<void> local = within("trainers per node", topology.per_node, kMaxTrainers); !local) {
    return local;
  }
  if (topology.trainers > topology.per_node && topology.trainers % topology.per_node != 0) {
    return invalid("above one node, trainers must be a multiple of the " + std::to_string(topology.per_node) +
                   " of a node, are " + std::to_string(topology.trainers));
  }
  return {};
}

Error unfittable(const Infeasibility& found, Infeasibility* why) {
  if (why != nullptr) {
    *why = found;
  }
  return Error(ErrorCode::kUnfittable, found.constraint + ": " + found.reason);
}

}  // namespace plimsoll::estimator::sharder
