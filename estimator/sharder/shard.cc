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

// Ranks to which a table's amounts are added in the time of one unit of work.
constexpr std::size_t kRanksPerUnit = 64;

void add(const Held& held, RankLoad* load) {
  load->memory += held.card;
  load->host_memory += held.host;
  load->weights += held.weights;
  load->optimizer += held.optimizer;
}

// Places one table and adds its cost to the ranks.
TablePlacement place(const ShardRequest& request, const CostModel& model, std::size_t index,
                     const Option& option, std::span<const std::int64_t> places,
                     std::vector<RankLoad>* ranks) {
  const Table& table = request.tables[index];
  TablePlacement placement{
      .table = static_cast<std::int64_t>(index), .type = option.type, .kernel = option.kernel, .shards = {}};
  const TableCost cost(model, table);
  const std::int64_t columns = table.dim / option.cuts;
  const std::int64_t rows_of_block = cost.row_block(option.type);
  const StageTimes times = cost.times(option.type, option.kernel, columns);
  const Held whole = cost.held(option.type, option.kernel, rows_of_block, columns);
  const Held last = cost.held(option.type, option.kernel, table.rows % rows_of_block, columns);
  if (option.type == ShardingType::kDataParallel) {
    charge(request.work_budget, ranks->size() / kRanksPerUnit + 1);
    for (RankLoad& load : *ranks) {
      load.stages += times;
      add(whole, &load);
    }
    return placement;
  }
  const std::int64_t width = option.ranks_per_block(model);
  for (std::int64_t block = 0; block < option.cuts; ++block) {
    const std::int64_t first = option.everywhere() ? 0 : places[static_cast<std::size_t>(block)] * width;
    for (std::int64_t shard = 0; shard < width; ++shard) {
      RankLoad& load = (*ranks)[static_cast<std::size_t>(first + shard)];
      load.stages += times;  // also of a rank without rows: it takes part in the exchange
      const std::int64_t rows = cost.rows_of(option.type, shard);
      if (rows > 0) {
        add(rows == rows_of_block ? whole : last, &load);
        placement.shards.push_back({first + shard, shard * rows_of_block, shard * rows_of_block + rows,
                                    block * columns, (block + 1) * columns});
      }
    }
  }
  return placement;
}

// The largest and mean figures of the ranks.
void summarize(CostMethod method, const CostModel& model, Plan* plan) {
  double total_ms = 0;
  double total_bytes = 0;
  Bytes node;
  for (std::size_t rank = 0; rank < plan->ranks.size(); ++rank) {
    RankLoad& load = plan->ranks[rank];
    load.milliseconds = load.stages.total();
    plan->critical_path = longest(plan->critical_path, load.stages);
    total_ms += load.milliseconds;
    total_bytes += static_cast<double>(load.memory.count);
    plan->max_milliseconds = std::max(plan->max_milliseconds, load.milliseconds);
    plan->max_memory = std::max(plan->max_memory, load.memory);
    node += load.memory;
    if ((rank + 1) % static_cast<std::size_t>(model.local) == 0) {
      plan->node_max_memory = std::max(plan->node_max_memory, node);
      node = Bytes{0};
    }
  }
  if (method == CostMethod::kStages) {
    plan->max_milliseconds = plan->critical_path.total();
  }
  plan->mean_milliseconds = total_ms / static_cast<double>(model.trainers);
  plan->mean_memory = Bytes::ceil(total_bytes / static_cast<double>(model.trainers));
  plan->node_mean_memory = Bytes::ceil(total_bytes / static_cast<double>(model.nodes));
}

Plan make_plan(const ShardRequest& request, const PlacedSelection& found, double bound) {
  const CostModel model(request);
  const auto tables = static_cast<std::int64_t>(request.tables.size());
  std::int64_t shards = 0;
  for (const Option* option : found.selection.options) {
    shards += option->type == ShardingType::kDataParallel ? 0 : option->cuts * option->ranks_per_block(model);
  }
  // Each shard is added to its rank.
  charge(request.work_budget, static_cast<std::size_t>(tables + shards));
  const BudgetBytes memory(request.work_budget, Bytes{sizeof(Shard)} * shards +
                                                    Bytes{sizeof(RankLoad)} * model.trainers +
                                                    Bytes{sizeof(TablePlacement)} * tables);
  Plan plan;
  plan.lower_bound_milliseconds = bound;
  plan.ranks.resize(static_cast<std::size_t>(model.trainers));
  plan.placements.reserve(request.tables.size());
  for (std::size_t i = 0; i < request.tables.size(); ++i) {
    plan.placements.push_back(
        place(request, model, i, *found.selection.options[i], found.places.of(i), &plan.ranks));
  }
  summarize(request.cost, model, &plan);
  return plan;
}

// No lower bound excludes it, but the best plan found exceeds a trainer's memory.
Infeasibility unplaced(const ShardRequest& request, const MemoryLimits& limits,
                       const PlacedSelection& found) {
  const bool on_card = found.highest_bytes > limits.gpu;
  const Bytes missing =
      Bytes::ceil(on_card ? found.highest_bytes - limits.gpu : found.highest_host - limits.host);
  const Bytes budget = !on_card                  ? request.host_budget
                       : request.budgets.empty() ? request.budget
                                                 : request.budgets[static_cast<std::size_t>(found.fullest)];
  return {.constraint = "Placement",
          .reason = "no lower bound excludes it, but the best plan found fills a trainer with " +
                    to_string(budget + missing) + " of " + to_string(budget) +
                    (on_card ? "" : " of its host's memory") + ": " + to_string(missing) + " missing",
          .missing = request.budgets.empty() ? missing * request.topology.trainers : missing,
          .table = {}};
}

Result<void> check(const ShardRequest& request) {
  if (Result<void> checked = check_tables(request); !checked) {
    return checked;
  }
  if (Result<void> checked = check_trainers(request.topology); !checked) {
    return checked;
  }
  return check_ranks(request);
}

}  // namespace

Result<Plan> shard(const ShardRequest& request, Infeasibility* why) {
  if (Result<void> checked = check(request); !checked) {
    return checked.error();
  }
  const Options options(request);
  if (const Infeasibility bounds = rule_out(request, options); !bounds.constraint.empty()) {
    return unfittable(bounds, why);
  }
  const MemoryLimits limits(request);
  const TimeBound bound = bound_time(options, request.topology.trainers, limits);
  const PlacedSelection found = search(request, options, limits, bound);
  if (!found.fits(limits)) {
    return unfittable(unplaced(request, limits, found), why);
  }
  return make_plan(request, found, bound.milliseconds);
}

Result<double> least_milliseconds(const ShardRequest& request) {
  if (Result<void> checked = check(request); !checked) {
    return checked.error();
  }
  const Options options(request);
  if (const Infeasibility bounds = rule_out(request, options); !bounds.constraint.empty()) {
    return unfittable(bounds, nullptr);
  }
  return bound_time(options, request.topology.trainers, MemoryLimits(request)).milliseconds;
}

}  // namespace plimsoll::estimator::sharder
