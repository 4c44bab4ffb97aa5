#include <algorithm>

#include "tests/fake_apiserver/resource_type.h"
#include "tests/fake_apiserver/schema.h"

namespace plimsoll::testing::fake {
namespace {

std::vector<std::string> strings_of(const Json& array) {
  std::vector<std::string> strings;
  if (array.isArray()) {
    for (const Json& item : array) {
      if (item.isString()) {
        strings.push_back(item.asString());
      }
    }
  }
  return strings;
}

std::vector<Column> columns_of(const Json& version) {
  std::vector<Column> columns;
  const Json& described = member(version, {"additionalPrinterColumns"});
  if (!described.isArray() || described.empty()) {
    columns.push_back({.name = "Age", .type = "date", .json_path = ".metadata.creationTimestamp"});
    return columns;
  }
  for (const Json& each : described) {
    Column column;
    column.name = text_member(each, {"name"});
    column.type = text_member(each, {"type"}, "string");
    column.format = text_member(each, {"format"});
    column.json_path = text_member(each, {"jsonPath"});
    column.description = text_member(
        each, {"description"},
        "Custom resource definition column (in JSONPath format): " + text_member(each, {"jsonPath"}));
    const Json& priority = member(each, {"priority"});
    column.priority = priority.isInt() ? priority.asInt() : 0;
    columns.push_back(std::move(column));
  }
  return columns;
}

}  // namespace

std::vector<ResourceType> types_of_definition(const Json& definition) {
  std::vector<ResourceType> types;
  const Json& names = member(definition, {"spec", "names"});
  const Json& versions = member(definition, {"spec", "versions"});
  if (!versions.isArray()) {
    return types;
  }
  for (const Json& version : versions) {
    const Json& served = member(version, {"served"});
    if (!served.isBool() || !served.asBool()) {
      continue;
    }
    ResourceType type;
    type.group = text_member(definition, {"spec", "group"});
    type.version = text_member(version, {"name"});
    type.plural = text_member(names, {"plural"});
    type.singular = text_member(names, {"singular"});
    type.kind = text_member(names, {"kind"});
    type.short_names = strings_of(member(names, {"shortNames"}));
    type.categories = strings_of(member(names, {"categories"}));
    type.namespaced = text_member(definition, {"spec", "scope"}) == "Namespaced";
    type.has_status = member(version, {"subresources", "status"}).isObject();
    type.columns = columns_of(version);
    type.custom = true;
    type.schema = member(version, {"schema", "openAPIV3Schema"});
    type.unevaluated_rules = unevaluated_rules(type.schema);
    for (UnevaluatedRule& rule : type.unevaluated_rules) {
      rule.resource = type.group_resource();
    }
    const Json& selectable = member(version, {"selectableFields"});
    if (selectable.isArray()) {
      for (const Json& field : selectable) {
        const std::string path = text_member(field, {"jsonPath"});
        type.selectable_fields.push_back(path.starts_with(".") ? path.substr(1) : path);
      }
    }
    types.push_back(std::move(type));
  }
  return types;
}

Registry::Registry() {
  install(builtin_types());
}

TypePtr Registry::find(const std::string& group, const std::string& version,
                       const std::string& plural) const {
  const std::shared_lock lock(mutex_);
  for (const TypePtr& type : types_) {
    if (type->plural == plural && type->group == group && type->version == version) {
      return type;
    }
  }
  return nullptr;
}

TypePtr Registry::find_kind(const std::string& api_version, const std::string& kind) const {
  const std::shared_lock lock(mutex_);
  for (const TypePtr& type : types_) {
    if (type->kind == kind && type->api_version() == api_version) {
      return type;
    }
  }
  return nullptr;
}

std::vector<TypePtr> Registry::all() const {
  const std::shared_lock lock(mutex_);
  return types_;
}

bool Registry::has_group_version(const std::string& group, const std::string& version) const {
  const std::shared_lock lock(mutex_);
  return std::any_of(types_.begin(), types_.end(),
                     [&](const TypePtr& type) { return type->group == group && type->version == version; });
}

void Registry::install(const std::vector<ResourceType>& types) {
  const std::unique_lock lock(mutex_);
  for (const ResourceType& type : types) {
    const auto same = [&](const TypePtr& other) {
      return other->group_resource() == type.group_resource() && other->version == type.version;
    };
    const auto old = std::find_if(types_.begin(), types_.end(), same);
    if (old != types_.end()) {
      *old = std::make_shared<const ResourceType>(type);
    } else {
      types_.push_back(std::make_shared<const ResourceType>(type));
    }
  }
}

void Registry::remove_group_resource(const std::string& group_resource) {
  const std::unique_lock lock(mutex_);
  std::erase_if(
      types_, [&](const TypePtr& type) { return type->custom && type->group_resource() == group_resource; });
}

}  // namespace plimsoll::testing::fake
