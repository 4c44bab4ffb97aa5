#include "estimator/sharder/shard.h"

#include <algorithm>
#include <span>
#include <utility>

#include "estimator/sharder/bound.h"
#include "estimator/sharder/options.h"
#include "estimator/sharder/request.h"
#include "estimator/sharder/search.h"

namespace plimsoll::estimator::inline sharder {
namespace {

// Ranks to which a table's amounts are added in the time of a unit of work.
constexpr std::size_t kRanksPerUnit = 64;

void add(const StageTimes& times, StageTimes* sum) {
  sum->forward_compute += times.forward_compute;
  sum->forward_exchange += times.forward_exchange;
  sum->backward_compute += times.backward_compute;
  sum->backward_exchange += times.backward_exchange;
}

void add(const Held& held, RankLoad* load) {
  load->memory += held.card;
  load->host_memory += held.host;
  load->weights += held.weights;
  load->optimizer += held.optimizer;
}

Plan make_plan(const ShardRequest& request, const PlacedSelection& candidate, double bound) {
  const Topology& topology = request.topology;
  const CostModel model(request);
  Plan plan;
  std::int64_t shards = 0;
  for (const Option* option : candidate.selection.options) {
    shards += option->type == ShardingType::kRowWise ? model.trainers
              : option->everywhere()                 ? 0
                                                     : option->cuts * (option->on_nodes() ? model.local : 1);
  }
  // Work on every rank is added up rank by rank.
  charge(request.work_budget, request.tables.size() + static_cast<std::size_t>(shards));
  const BudgetBytes memory(
      request.work_budget,
      Bytes{sizeof(Shard)} * shards + Bytes{sizeof(RankLoad)} * topology.trainers +
          Bytes{sizeof(TablePlacement)} * static_cast<std::int64_t>(request.tables.size()));
  plan.ranks.resize(static_cast<std::size_t>(topology.trainers));
  plan.placements.reserve(request.tables.size());
  for (std::size_t i = 0; i < request.tables.size(); ++i) {
    const Table& table = request.tables[i];
    const Option& option = *candidate.selection.options[i];
    const std::span<const std::int64_t> places = candidate.places.of(i);
    const TableCost cost(model, table);
    const std::int64_t columns_of_part = table.dim / option.cuts;
    const StageTimes times = cost.times(option.type, option.kernel, columns_of_part);
    TablePlacement placement{
        .table = static_cast<std::int64_t>(i), .type = option.type, .kernel = option.kernel, .shards = {}};
    const auto put = [&](std::int64_t rank, std::int64_t row, std::int64_t rows, std::int64_t column,
                         const Held& held) {
      RankLoad& load = plan.ranks[static_cast<std::size_t>(rank)];
      add(times, &load.stages);
      if (rows > 0) {
        add(held, &load);
        placement.shards.push_back({rank, row, row + rows, column, column + columns_of_part});
      }
    };
    const std::int64_t block = cost.row_block(option.type);
    const Held whole_block = cost.held(option.type, option.kernel, block, columns_of_part);
    const Held last_block = cost.held(option.type, option.kernel, table.rows % block, columns_of_part);
    const auto put_rows = [&](std::int64_t first, std::int64_t ranks, std::int64_t column) {
      for (std::int64_t shard = 0; shard < ranks; ++shard) {
        const std::int64_t rows = cost.rows_of(option.type, shard);
        put(first + shard, shard * block, rows, column, rows == block ? whole_block : last_block);
      }
    };
    switch (option.type) {
      case ShardingType::kTableWise:
      case ShardingType::kColumnWise:
      case ShardingType::kTableColumnWise:
        for (std::size_t part = 0; part < places.size(); ++part) {
          put(places[part], 0, table.rows, static_cast<std::int64_t>(part) * columns_of_part, whole_block);
        }
        break;
      case ShardingType::kTableRowWise:
      case ShardingType::kGrid:
        for (std::size_t part = 0; part < places.size(); ++part) {
          put_rows(places[part] * model.local, model.local,
                   static_cast<std::int64_t>(part) * columns_of_part);
        }
        break;
      case ShardingType::kRowWise: put_rows(0, model.trainers, 0); break;
      case ShardingType::kDataParallel:
        charge(request.work_budget, plan.ranks.size() / kRanksPerUnit + 1);
        for (RankLoad& load : plan.ranks) {
          add(times, &load.stages);
          add(whole_block, &load);
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
    RankLoad& load = plan.ranks[rank];
    load.milliseconds = load.stages.total();
    plan.critical_path.forward_compute =
        std::max(plan.critical_path.forward_compute, load.stages.forward_compute);
    plan.critical_path.forward_exchange =
        std::max(plan.critical_path.forward_exchange, load.stages.forward_exchange);
    plan.critical_path.backward_compute =
        std::max(plan.critical_path.backward_compute, load.stages.backward_compute);
    plan.critical_path.backward_exchange =
        std::max(plan.critical_path.backward_exchange, load.stages.backward_exchange);
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
  if (request.cost == CostMethod::kStages) {
    plan.max_milliseconds = plan.critical_path.total();
  }
  plan.mean_milliseconds = total_ms / static_cast<double>(model.trainers);
  plan.mean_memory = Bytes::ceil(total_bytes / static_cast<double>(model.trainers));
  plan.node_mean_memory = Bytes::ceil(total_bytes / static_cast<double>(model.nodes));
  return plan;
}

// No bound forbids it, but the best plan found overfills a trainer.
Infeasibility unplaced(const ShardRequest& request, const Search& search, const PlacedSelection& candidate) {
  const Room& room = search.room();
  const bool on_card = candidate.highest_bytes > room.largest;
  const Bytes missing =
      Bytes::ceil(on_card ? candidate.highest_bytes - room.largest : candidate.highest_host - room.host);
  const Bytes budget = !on_card ? request.host_budget
                       : request.budgets.empty()
                           ? request.budget
                           : request.budgets[static_cast<std::size_t>(candidate.fullest)];
  return {.constraint = "Placement",
          .reason = "no bound forbids it, but the best plan found fills a trainer with " +
                    to_string(budget + missing) + " of " + to_string(budget) +
                    (on_card ? "" : " of its host's memory") + ": " + to_string(missing) + " missing",
          .missing = missing,
          .table = {}};
}

}  // namespace

Result<Plan> shard(const ShardRequest& request, Infeasibility* why) {
  if (Result<void> checked = check_tables(request); !checked) {
    return checked.error();
  }
  if (Result<void> checked = check_trainers(request.topology); !checked) {
    return checked.error();
  }
  if (Result<void> checked = check_ranks(request); !checked) {
    return checked.error();
  }
  const Options options(request);
  if (Infeasibility found = rule_out(request, options); !found.constraint.empty()) {
    return unfittable(found, why);
  }
  Search search(request, options);
  const PlacedSelection candidate = search.run();
  if (!search.fits(candidate)) {
    return unfittable(unplaced(request, search, candidate), why);
  }
  return make_plan(request, candidate, search.bound());
}

}  // namespace plimsoll::estimator::sharder
