#include "estimator/sharder/plan_json.h"

#include <utility>

#include "base/json/edit.h"
#include "estimator/sharder/cost.h"

namespace plimsoll::estimator::inline sharder {
namespace {

Json list() {
  return Json(::Json::arrayValue);
}

// All shards, with the copies of a data-parallel table, which the plan does not list.
std::vector<Shard> all_shards(const ShardRequest& request, const TablePlacement& placement) {
  std::vector<Shard> shards = placement.shards;
  if (placement.type == ShardingType::kDataParallel) {
    const Table& table = request.tables[static_cast<std::size_t>(placement.table)];
    for (std::int64_t rank = 0; rank < request.topology.trainers; ++rank) {
      shards.push_back({rank, 0, table.rows, 0, table.dim});
    }
  }
  return shards;
}

// As torchrec lists them: by column block, then by rank, with an empty shard for each rank without rows.
std::vector<Shard> with_empty_shards(const Table& table, const CostModel& model,
                                     const TablePlacement& placement) {
  const bool in_nodes =
      placement.type == ShardingType::kTableRowWise || placement.type == ShardingType::kGrid;
  const std::int64_t ranks = placement.type == ShardingType::kRowWise ? model.trainers
                             : in_nodes                               ? model.local
                                                                      : 1;
  std::vector<Shard> shards;
  for (const Shard& shard : placement.shards) {
    shards.push_back(shard);
    const std::int64_t end = shard.rank / ranks * ranks + ranks;
    for (std::int64_t rank = shard.rank + 1; rank < end && shard.row_end == table.rows; ++rank) {
      shards.push_back({rank, table.rows, table.rows, shard.column_begin, shard.column_end});
    }
  }
  return shards;
}

Json to_json(const Shard& shard) {
  JsonObject json;
  json["rank"] = shard.rank;
  json["rowBegin"] = shard.row_begin;
  json["rowEnd"] = shard.row_end;
  json["columnBegin"] = shard.column_begin;
  json["columnEnd"] = shard.column_end;
  return json;
}

Json to_json(const RankLoad& load) {
  JsonObject json;
  json["milliseconds"] = load.milliseconds;
  json["memoryBytes"] = load.memory.count;
  json["tableBytes"] = load.weights.count;
  json["optimizerBytes"] = load.optimizer.count;
  json["hostBytes"] = load.host_memory.count;
  return json;
}

}  // namespace

void write_summary(const Plan& plan, const JsonPlace& json) {
  json["perf"]["maxMs"] = plan.max_milliseconds;
  json["perf"]["meanMs"] = plan.mean_milliseconds;
  json["perf"]["lowerBoundMs"] = plan.lower_bound_milliseconds;
  json["memory"]["maxBytes"] = plan.max_memory.count;
  json["memory"]["meanBytes"] = plan.mean_memory.count;
  json["memory"]["nodeMaxBytes"] = plan.node_max_memory.count;
  json["memory"]["nodeMeanBytes"] = plan.node_mean_memory.count;
}

Json to_json(const ShardRequest& request, const Plan& plan) {
  JsonObject json;
  json["feasible"] = true;
  write_summary(plan, json);
  const JsonPlace critical = json["perf"]["criticalPathMs"];
  critical["forwardCompute"] = plan.critical_path.forward_compute;
  critical["forwardExchange"] = plan.critical_path.forward_exchange;
  critical["backwardCompute"] = plan.critical_path.backward_compute;
  critical["backwardExchange"] = plan.critical_path.backward_exchange;
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
    const Table& placed = request.tables[static_cast<std::size_t>(placement.table)];
    JsonObject table;
    table["sharding_type"] = name_of(placement.type);
    table["compute_kernel"] = name_of(placement.kernel);
    table["ranks"] = list();
    table["sharding_spec"] = Json();
    if (placement.type == ShardingType::kDataParallel) {
      for (std::int64_t rank = 0; rank < model.trainers; ++rank) {
        table["ranks"].append(rank);
      }
    }
    for (const Shard& shard : with_empty_shards(placed, model, placement)) {
      JsonObject part;
      part["shard_offsets"].append(shard.row_begin);
      part["shard_offsets"].append(shard.column_begin);
      part["shard_sizes"].append(shard.row_end - shard.row_begin);
      part["shard_sizes"].append(shard.column_end - shard.column_begin);
      part["placement"] = place_of(shard.rank);
      table["ranks"].append(shard.rank);
      table["sharding_spec"]["shards"].append(std::move(part));
    }
    tables[placed.name] = std::move(table);
  }
  JsonObject json;
  json[module] = std::move(tables);
  return json;
}

}  // namespace plimsoll::estimator::sharder
