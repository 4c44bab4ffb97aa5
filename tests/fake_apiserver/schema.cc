#include "tests/fake_apiserver/schema.h"

#include <utility>

namespace plimsoll::testing::fake {
namespace {

bool flag(const Json& schema, const char* name) {
  const Json& value = member(schema, {name});
  return value.isBool() && value.asBool();
}

void default_into(Json& value, const Json& schema) {
  const Json& properties = member(schema, {"properties"});
  if (value.isObject() && properties.isObject()) {
    for (const std::string& name : properties.getMemberNames()) {
      const Json& property = properties[name];
      const bool absent = !value.isMember(name) || (value[name].isNull() && !flag(property, "nullable"));
      if (absent && property.isMember("default")) {
        value[name] = property["default"];
      } else if (absent) {
        // A null where the schema allows none counts as absent.
        value.removeMember(name);
      }
      if (value.isMember(name)) {
        default_into(value[name], property);
      }
    }
  }
  const Json& rest = member(schema, {"additionalProperties"});
  if (value.isObject() && rest.isObject()) {
    for (const std::string& name : value.getMemberNames()) {
      if (!properties.isObject() || !properties.isMember(name)) {
        default_into(value[name], rest);
      }
    }
  }
  const Json& items = member(schema, {"items"});
  if (value.isArray() && items.isObject()) {
    for (Json& item : value) {
      default_into(item, items);
    }
  }
}

class Pruner {
 public:
  void run(Json& value, const Json& schema, const std::string& path, bool is_object_root) {
    if (value.isArray()) {
      const Json& items = member(schema, {"items"});
      for (Json::ArrayIndex i = 0; items.isObject() && i < value.size(); ++i) {
        run(value[i], items, path + "[" + std::to_string(i) + "]", false);
      }
      return;
    }
    if (!value.isObject()) {
      return;
    }
    const bool keeps_all = flag(schema, "x-kubernetes-preserve-unknown-fields");
    const bool has_type_meta = is_object_root || flag(schema, "x-kubernetes-embedded-resource");
    const Json& properties = member(schema, {"properties"});
    const Json& rest = member(schema, {"additionalProperties"});
    for (const std::string& name : value.getMemberNames()) {
      if (has_type_meta && (name == "apiVersion" || name == "kind" || name == "metadata")) {
        continue;
      }
      const std::string field = path.empty() ? name : path + "." + name;
      if (properties.isObject() && properties.isMember(name)) {
        run(value[name], properties[name], field, false);
      } else if (rest.isObject()) {
        run(value[name], rest, field, false);
      } else if (!keeps_all && !(rest.isBool() && rest.asBool())) {
        value.removeMember(name);
        dropped.push_back(field);
      }
    }
  }

  std::vector<std::string> dropped;
};

}  // namespace

void apply_defaults(Json& object, const Json& schema) {
  default_into(object, schema);
}

std::vector<std::string> prune(Json& object, const Json& schema) {
  Pruner pruner;
  pruner.run(object, schema, "", true);
  return std::move(pruner.dropped);
}

bool has_cel_rules(const Json& schema) {
  if (schema.isObject() && schema.isMember("x-kubernetes-validations")) {
    return true;
  }
  if (schema.isObject() || schema.isArray()) {
    for (const Json& each : schema) {
      if (has_cel_rules(each)) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace plimsoll::testing::fake
