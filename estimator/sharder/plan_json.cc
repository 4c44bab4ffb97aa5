#include <utility>

#include "estimator/sharder/sharder.h"

namespace plimsoll::estimator {

namespace {

Json number(std::int64_t value) {
  return Json(static_cast<Json::Int64>(value));
}

Json to_json(const Shard& shard) {
  Json json(::Json::objectValue);
  json["rank"] = number(shard.rank);
  json["rowBegin"] = number(shard.row_begin);
  json["rowEnd"] = number(shard.row_end);
  json["columnBegin"] = number(shard.column_begin);
  json["columnEnd"] = number(shard.column_end);
  return json;
}

}  // namespace

Json to_json(const ShardRequest& request, const Plan& plan) {
  Json json(::Json::objectValue);
  json["feasible"] = true;
  json["perf"]["maxMs"] = plan.max_milliseconds;
  json["perf"]["meanMs"] = plan.mean_milliseconds;
  json["perf"]["lowerBoundMs"] = plan.lower_bound_milliseconds;
  json["memory"]["maxBytes"] = number(plan.max_memory.count);
  json["memory"]["meanBytes"] = number(plan.mean_memory.count);
  json["memory"]["nodeMaxBytes"] = number(plan.node_max_memory.count);
  json["memory"]["nodeMeanBytes"] = number(plan.node_mean_memory.count);
  json["plan"] = Json(::Json::arrayValue);
  for (const TablePlacement& placement : plan.placements) {
    Json table(::Json::objectValue);
    table["table"] = request.tables[static_cast<std::size_t>(placement.table)].name;
    table["shardingType"] = name_of(placement.type);
    table["shards"] = Json(::Json::arrayValue);
    for (const Shard& shard : placement.shards) {
      table["shards"].append(to_json(shard));
    }
    json["plan"].append(std::move(table));
  }
  return json;
}

}  // namespace plimsoll::estimator
