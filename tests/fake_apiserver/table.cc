#include "tests/fake_apiserver/table.h"

#include <cstdint>
#include <ctime>

#include "tests/fake_apiserver/json_path.h"

namespace plimsoll::testing::fake {
namespace {

Json cell_of(const Column& column, const Json& object) {
  if (column.cell) {
    return column.cell(object);
  }
  const std::vector<const Json*> values = values_at(object, column.json_path);
  if (values.empty() || values[0]->isNull()) {
    return Json();
  }
  const Json& value = *values[0];
  if (column.type == "date") {
    return age_since(value);
  }
  if (column.type == "integer" && value.isNumeric()) {
    return static_cast<::Json::Int64>(value.asDouble());
  }
  if (column.type == "string" && !value.isString()) {
    return write_json(value);
  }
  return value;
}

Json definition_of(const Column& column) {
  Json definition(::Json::objectValue);
  definition["name"] = column.name;
  definition["type"] = column.type;
  definition["format"] = column.format;
  definition["description"] = column.description;
  definition["priority"] = column.priority;
  return definition;
}

}  // namespace

Json make_table(const ResourceType& type, const std::vector<const Json*>& objects,
                const TableOptions& options) {
  Json table(::Json::objectValue);
  table["kind"] = "Table";
  table["apiVersion"] = "meta.k8s.io/" + options.version;
  table["metadata"] = Json(::Json::objectValue);
  table["columnDefinitions"] = Json(::Json::arrayValue);
  if (options.headers) {
    table["columnDefinitions"].append(definition_of({.name = "Name", .format = "name"}));
    for (const Column& column : type.columns) {
      table["columnDefinitions"].append(definition_of(column));
    }
  }
  table["rows"] = Json(::Json::arrayValue);
  for (const Json* object : objects) {
    Json row(::Json::objectValue);
    row["cells"] = Json(::Json::arrayValue);
    row["cells"].append(text_member(*object, {"metadata", "name"}));
    for (const Column& column : type.columns) {
      row["cells"].append(cell_of(column, *object));
    }
    if (options.include == IncludeObject::kObject) {
      row["object"] = *object;
    } else if (options.include == IncludeObject::kMetadata) {
      row["object"]["kind"] = "PartialObjectMetadata";
      row["object"]["apiVersion"] = "meta.k8s.io/" + options.version;
      row["object"]["metadata"] = member(*object, {"metadata"});
    }
    table["rows"].append(std::move(row));
  }
  return table;
}

// The thresholds are those of apimachinery's duration.HumanDuration.
std::string format_age(std::chrono::seconds age) {
  const std::int64_t seconds = age.count();
  const std::int64_t minutes = seconds / 60;
  const std::int64_t hours = minutes / 60;
  const std::int64_t days = hours / 24;
  const auto with_rest = [](std::int64_t whole, const char* unit, std::int64_t rest, const char* rest_unit) {
    return std::to_string(whole) + unit + (rest == 0 ? "" : std::to_string(rest) + rest_unit);
  };
  if (seconds < 0) {
    return seconds >= -1 ? "0s" : "<invalid>";
  }
  if (seconds < 120) {
    return std::to_string(seconds) + "s";
  }
  if (minutes < 10) {
    return with_rest(minutes, "m", seconds % 60, "s");
  }
  if (minutes < 180) {
    return std::to_string(minutes) + "m";
  }
  if (hours < 8) {
    return with_rest(hours, "h", minutes % 60, "m");
  }
  if (hours < 48) {
    return std::to_string(hours) + "h";
  }
  if (days < 8) {
    return with_rest(days, "d", hours % 24, "h");
  }
  if (days < 730) {
    return std::to_string(days) + "d";
  }
  return days < 2920 ? with_rest(days / 365, "y", days % 365, "d") : std::to_string(days / 365) + "y";
}

std::string age_since(const Json& timestamp) {
  std::tm time{};
  if (!timestamp.isString() || strptime(timestamp.asCString(), "%Y-%m-%dT%H:%M:%S", &time) == nullptr) {
    return "<unknown>";
  }
  const auto then = std::chrono::system_clock::from_time_t(timegm(&time));
  return format_age(
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now() - then));
}

}  // namespace plimsoll::testing::fake
