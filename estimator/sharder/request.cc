#include "estimator/sharder/request.h"

#include <cmath>
#include <utility>

namespace plimsoll::estimator {

namespace {

// Beyond these the figures are no tables; below them no product of two leaves 64 bits or turns infinite.
constexpr std::int64_t kMostRows = std::int64_t{1} << 60;
constexpr std::int64_t kMostColumns = std::int64_t{1} << 24;
constexpr std::int64_t kMostBatch = std::int64_t{1} << 40;
constexpr std::int64_t kMostElementBytes = 16;
constexpr double kMostLookups = 1e12;

Result<void> within(const std::string& what, std::int64_t value, std::int64_t most) {
  if (value < 1 || value > most) {
    return invalid(what + " must be from 1 to " + std::to_string(most) + ", is " + std::to_string(value));
  }
  return {};
}

Result<void> check_table(const Table& table) {
  const std::string of = " of table " + table.name;
  if (Result<void> rows = within("rows" + of, table.rows, kMostRows); !rows) {
    return rows;
  }
  if (Result<void> columns = within("dim" + of, table.dim, kMostColumns); !columns) {
    return columns;
  }
  if (Result<void> element = within("bytes of an element" + of, table.element_bytes, kMostElementBytes);
      !element) {
    return element;
  }
  if (!(table.lookups_per_sample >= 0 && table.lookups_per_sample <= kMostLookups)) {
    return invalid("lookups a sample" + of + " must be from 0 to 1e12, is " +
                   std::to_string(table.lookups_per_sample));
  }
  return {};
}

}  // namespace

std::vector<Table> expand_tables(const std::vector<crds::EmbeddingTable>& groups) {
  std::vector<Table> tables;
  tables.reserve(groups.size());
  for (const crds::EmbeddingTable& group : groups) {
    for (std::int64_t i = 0; i < group.count; ++i) {
      tables.push_back({.name = group.count == 1 ? group.name : group.name + "." + std::to_string(i),
                        .rows = group.rows,
                        .dim = group.dim,
                        .lookups_per_sample = group.pooling_factor * group.lookup_frequency,
                        .element_bytes = crds::width_bytes(group.dtype)});
    }
  }
  return tables;
}

Result<void> check_tables(const ShardRequest& request) {
  if (Result<void> batch = within("batch size", request.batch_size, kMostBatch); !batch) {
    return batch;
  }
  const Topology& topology = request.topology;
  for (const auto& [what, bandwidth] : {std::pair{"bandwidth within a node", topology.intra_node_bandwidth},
                                        std::pair{"bandwidth between nodes", topology.inter_node_bandwidth},
                                        std::pair{"HBM bandwidth", topology.hbm_bandwidth}}) {
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
  return {};
}

Result<void> check_trainers(const Topology& topology) {
  if (Result<void> trainers = within("trainers", topology.trainers, kMostTrainers); !trainers) {
    return trainers;
  }
  if (Result<void> local = within("trainers per node", topology.per_node, kMostTrainers); !local) {
    return local;
  }
  if (topology.trainers > topology.per_node && topology.trainers % topology.per_node != 0) {
    return invalid("trainers must be a multiple of the " + std::to_string(topology.per_node) +
                   " of a node once they are more, are " + std::to_string(topology.trainers));
  }
  return {};
}

Error unfittable(const Infeasibility& found, Infeasibility* why) {
  if (why != nullptr) {
    *why = found;
  }
  return Error(ErrorCode::kUnfittable, found.constraint + ": " + found.reason);
}

}  // namespace plimsoll::estimator
