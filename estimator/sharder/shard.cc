// shard(): bounds, search, and the plan written out.
#include <algorithm>
#include <utility>

#include "estimator/sharder/bound.h"
#include "estimator/sharder/options.h"
#include "estimator/sharder/request.h"
#include "estimator/sharder/search.h"
#include "estimator/sharder/sharder.h"

namespace plimsoll::estimator {

namespace {

Plan make_plan(const ShardRequest& request, const Candidate& candidate, double bound) {
  const Topology& topology = request.topology;
  const CostModel model(request);
  Plan plan;
  plan.ranks.resize(static_cast<std::size_t>(topology.trainers));
  plan.placements.reserve(request.tables.size());
  for (std::size_t i = 0; i < request.tables.size(); ++i) {
    const Table& table = request.tables[i];
    const Option& option = *candidate.selection.options[i];
    const std::vector<std::int64_t>& places = candidate.places[i];
    const TableCost cost(model, table);
    TablePlacement placement{.table = static_cast<std::int64_t>(i), .type = option.type, .shards = {}};
    const auto put = [&](std::int64_t rank, std::int64_t row, std::int64_t rows, std::int64_t column,
                         std::int64_t columns) {
      RankLoad& load = plan.ranks[static_cast<std::size_t>(rank)];
      load.milliseconds += option.ms;
      if (rows > 0) {
        load.memory += cost.held(option.type, option.kernel, rows, columns).card;
        placement.shards.push_back({rank, row, row + rows, column, column + columns});
      }
    };
    switch (option.type) {
      case ShardingType::kTableWise:
      case ShardingType::kColumnWise:
      case ShardingType::kTableColumnWise: {
        const std::int64_t columns = table.dim / option.cuts;
        for (std::size_t part = 0; part < places.size(); ++part) {
          put(places[part], 0, table.rows, static_cast<std::int64_t>(part) * columns, columns);
        }
        break;
      }
      case ShardingType::kTableRowWise:
      case ShardingType::kGrid:
      case ShardingType::kRowWise: {
        const bool everywhere = option.type == ShardingType::kRowWise;
        const std::int64_t first = everywhere ? 0 : places.front() * model.local;
        const std::int64_t ranks = everywhere ? model.trainers : model.local;
        const std::int64_t block = cost.row_block(option.type);
        for (std::int64_t shard = 0; shard < ranks; ++shard) {
          put(first + shard, shard * block, cost.rows_of(option.type, shard), 0, table.dim);
        }
        break;
      }
      case ShardingType::kDataParallel:
        placement.shards.reserve(plan.ranks.size());
        for (std::int64_t rank = 0; rank < model.trainers; ++rank) {
          put(rank, 0, table.rows, 0, table.dim);
        }
        break;
    }
    plan.placements.push_back(std::move(placement));
  }
  plan.lower_bound_milliseconds = bound;
  double total_ms = 0;
  double total_bytes = 0;
  Bytes node;
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const RankLoad& load = plan.ranks[rank];
    total_ms += load.milliseconds;
    total_bytes += static_cast<double>(load.memory.count);
    plan.max_milliseconds = std::max(plan.max_milliseconds, load.milliseconds);
    plan.max_memory = std::max(plan.max_memory, load.memory);
    node += load.memory;
    if ((rank + 1) % static_cast<std::size_t>(model.local) == 0) {
      plan.node_max_memory = std::max(plan.node_max_memory, node);
      node = Bytes{0};
    }
  }
  plan.mean_milliseconds = total_ms / static_cast<double>(model.trainers);
  plan.mean_memory = Bytes::ceil(total_bytes / static_cast<double>(model.trainers));
  plan.node_mean_memory = Bytes::ceil(total_bytes / static_cast<double>(model.nodes));
  return plan;
}

}  // namespace

Result<Plan> shard(const ShardRequest& request, Infeasibility* why) {
  if (Result<void> checked = check_tables(request); !checked) {
    return checked.error();
  }
  if (Result<void> checked = check_trainers(request.topology); !checked) {
    return checked.error();
  }
  const Options options(request);
  if (Infeasibility found = rule_out(request, options); !found.constraint.empty()) {
    return unfittable(found, why);
  }
  Search search(request, options);
  const Candidate candidate = search.run();
  if (candidate.highest_bytes > search.budget()) {
    const Bytes missing = Bytes::ceil(candidate.highest_bytes - search.budget());
    return unfittable({.constraint = "Placement",
                       .reason = "no bound forbids it, but the best plan found fills a trainer with " +
                                 to_string(Bytes::ceil(candidate.highest_bytes)) + " of " +
                                 to_string(request.budget) + ": " + to_string(missing) + " missing",
                       .missing = missing},
                      why);
  }
  return make_plan(request, candidate, search.bound());
}

}  // namespace plimsoll::estimator
