#include "estimator/sharder/plan_json.h"

#include <utility>

#include "base/json/edit.h"
#include "estimator/sharder/cost.h"

namespace plimsoll::estimator::inline sharder {
namespace {

Json number(std::int64_t value) {
  return Json(static_cast<Json::Int64>(value));
}

Json list() {
  return Json(::Json::arrayValue);
}

// A data-parallel table is whole on every rank; the plan does not list that.
std::vector<Shard> all_shards(const ShardRequest& request, const TablePlacement& placement) {
  if (placement.type != ShardingType::kDataParallel) {
    return placement.shards;
  }
  const Table& table = request.tables[static_cast<std::size_t>(placement.table)];
  std::vector<Shard> shards;
  for (std::int64_t rank = 0; rank < request.topology.trainers; ++rank) {
    shards.push_back({rank, 0, table.rows, 0, table.dim});
  }
  return shards;
}

// As torchrec lists them: by column block, then by rank, and the ranks that have no rows with an empty shard.
std::vector<Shard> with_empty_shards(const ShardRequest& request, const TablePlacement& placement) {
  const bool row_wise = placement.type == ShardingType::kRowWise;
  if (!row_wise && placement.type != ShardingType::kTableRowWise && placement.type != ShardingType::kGrid) {
    return placement.shards;
  }
  const CostModel model(request);
  const Table& table = request.tables[static_cast<std::size_t>(placement.table)];
  std::vector<Shard> shards;
  for (const Shard& shard : placement.shards) {
    shards.push_back(shard);
    if (shard.row_end == table.rows) {
      const std::int64_t first = row_wise ? 0 : shard.rank / model.local * model.local;
      const std::int64_t last = first + (row_wise ? model.trainers : model.local);
      for (std::int64_t rank = shard.rank + 1; rank < last; ++rank) {
        shards.push_back({rank, table.rows, table.rows, shard.column_begin, shard.column_end});
      }
    }
  }
  return shards;
}

Json to_json(const Shard& shard) {
  JsonObject json;
  json["rank"] = number(shard.rank);
  json["rowBegin"] = number(shard.row_begin);
  json["rowEnd"] = number(shard.row_end);
  json["columnBegin"] = number(shard.column_begin);
  json["columnEnd"] = number(shard.column_end);
  return json;
}

Json to_json(const RankLoad& load) {
  JsonObject json;
  json["milliseconds"] = load.milliseconds;
  json["memoryBytes"] = number(load.memory.count);
  json["tableBytes"] = number(load.weights.count);
  json["optimizerBytes"] = number(load.optimizer.count);
  json["hostBytes"] = number(load.host_memory.count);
  return json;
}

}  // namespace

Json to_json(const ShardRequest& request, const Plan& plan) {
  JsonObject json;
  json["feasible"] = true;
  json["perf"]["maxMs"] = plan.max_milliseconds;
  json["perf"]["meanMs"] = plan.mean_milliseconds;
  json["perf"]["lowerBoundMs"] = plan.lower_bound_milliseconds;
  const JsonPlace critical = json["perf"]["criticalPathMs"];
  critical["forwardCompute"] = plan.critical_path.forward_compute;
  critical["forwardExchange"] = plan.critical_path.forward_exchange;
  critical["backwardCompute"] = plan.critical_path.backward_compute;
  critical["backwardExchange"] = plan.critical_path.backward_exchange;
  json["memory"]["maxBytes"] = number(plan.max_memory.count);
  json["memory"]["meanBytes"] = number(plan.mean_memory.count);
  json["memory"]["nodeMaxBytes"] = number(plan.node_max_memory.count);
  json["memory"]["nodeMeanBytes"] = number(plan.node_mean_memory.count);
  json["plan"] = list();
  for (const TablePlacement& placement : plan.placements) {
    JsonObject table;
    table["table"] = request.tables[static_cast<std::size_t>(placement.table)].name;
    table["shardingType"] = name_of(placement.type);
    table["computeKernel"] = name_of(placement.kernel);
    table["shards"] = list();
    for (const Shard& shard : all_shards(request, placement)) {
      table["shards"].append(to_json(shard));
    }
    json["plan"].append(std::move(table));
  }
  json["ranks"] = list();
  for (const RankLoad& load : plan.ranks) {
    json["ranks"].append(to_json(load));
  }
  return json;
}

Json to_torchrec_json(const ShardRequest& request, const Plan& plan, const std::string& module,
                      const std::string& device) {
  const CostModel model(request);
  const auto place_of = [&](std::int64_t rank) {
    const std::string on = device == "cpu" ? device : device + ":" + std::to_string(rank % model.local);
    return "rank:" + std::to_string(rank) + "/" + on;
  };
  JsonObject tables;
  for (const TablePlacement& placement : plan.placements) {
    JsonObject table;
    table["sharding_type"] = name_of(placement.type);
    table["compute_kernel"] = name_of(placement.kernel);
    table["ranks"] = list();
    table["sharding_spec"] = Json();
    if (placement.type == ShardingType::kDataParallel) {
      for (std::int64_t rank = 0; rank < model.trainers; ++rank) {
        table["ranks"].append(number(rank));
      }
    }
    for (const Shard& shard : with_empty_shards(request, placement)) {
      JsonObject part;
      part["shard_offsets"] = list();
      part["shard_offsets"].append(number(shard.row_begin));
      part["shard_offsets"].append(number(shard.column_begin));
      part["shard_sizes"] = list();
      part["shard_sizes"].append(number(shard.row_end - shard.row_begin));
      part["shard_sizes"].append(number(shard.column_end - shard.column_begin));
      part["placement"] = place_of(shard.rank);
      table["ranks"].append(number(shard.rank));
      table["sharding_spec"]["shards"].append(std::move(part));
    }
    tables[request.tables[static_cast<std::size_t>(placement.table)].name] = std::move(table);
  }
  JsonObject json;
  json[module] = std::move(tables);
  return json;
}

}  // namespace plimsoll::estimator::sharder
