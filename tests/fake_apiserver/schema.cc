#include "tests/fake_apiserver/schema.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace plimsoll::testing::fake {
namespace {

constexpr const char* kValidations = "x-kubernetes-validations";

void default_into(Json& value, const Json& schema) {
  const Json& properties = member(schema, {"properties"});
  if (value.isObject() && properties.isObject()) {
    for (const std::string& name : properties.getMemberNames()) {
      const Json& property = properties[name];
      const bool absent = !value.isMember(name) || (value[name].isNull() && !is_set(property, "nullable"));
      if (absent && property.isMember("default")) {
        value[name] = property["default"];
      } else if (absent) {
        // A null counts as absent unless the field is nullable.
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
      if (properties.isObject() && properties.isMember(name)) {
        continue;
      }
      if (value[name].isNull() && !is_set(rest, "nullable")) {
        value.removeMember(name);
      } else {
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
    const bool keeps_all = is_set(schema, "x-kubernetes-preserve-unknown-fields");
    const bool has_type_meta = is_object_root || is_set(schema, "x-kubernetes-embedded-resource");
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

// `field` is the path of the value that `schema` describes: [] stands for any index, [*] for any key.
void collect_rules(const Json& schema, const std::string& field, UnevaluatedRules& rules) {
  for (const Json& rule : member(schema, {kValidations})) {
    rules.push_back({.resource = {},
                     .field = field + text_member(rule, {"fieldPath"}),
                     .construct = kValidations,
                     .rule = text_member(rule, {"rule"}),
                     .message = text_member(rule, {"message"})});
  }
  if (const std::string format = text_member(schema, {"format"});
      !format.empty() && !evaluates_format(format)) {
    rules.push_back({.resource = {}, .field = field, .construct = "format", .rule = format, .message = {}});
  }
  const Json& properties = member(schema, {"properties"});
  for (const std::string& name : properties.isObject() ? properties.getMemberNames() : Json::Members()) {
    collect_rules(properties[name], field.empty() ? name : field + "." + name, rules);
  }
  if (const Json& items = member(schema, {"items"}); items.isObject()) {
    collect_rules(items, field + "[]", rules);
  }
  if (const Json& rest = member(schema, {"additionalProperties"}); rest.isObject()) {
    collect_rules(rest, field + "[*]", rules);
  }
}

}  // namespace

bool is_set(const Json& schema, const char* keyword) {
  const Json& value = member(schema, {keyword});
  return value.isBool() && value.asBool();
}

void write_integers(Json& value) {
  constexpr double kExact = 9007199254740992;  // 2^53
  if (value.isDouble() && std::floor(value.asDouble()) == value.asDouble() &&
      std::abs(value.asDouble()) <= kExact) {
    value = static_cast<::Json::Int64>(value.asDouble());
  } else if (value.isObject() || value.isArray()) {
    for (Json& each : value) {
      write_integers(each);
    }
  }
}

void apply_defaults(Json& object, const Json& schema) {
  default_into(object, schema);
}

std::vector<std::string> prune(Json& object, const Json& schema) {
  Pruner pruner;
  pruner.run(object, schema, "", true);
  return std::move(pruner.dropped);
}

bool has_cel_rules(const UnevaluatedRules& rules) {
  return std::any_of(rules.begin(), rules.end(),
                     [](const UnevaluatedRule& rule) { return rule.construct == kValidations; });
}

UnevaluatedRules unevaluated_rules(const Json& schema) {
  UnevaluatedRules rules;
  collect_rules(schema, "", rules);
  return rules;
}

}  // namespace plimsoll::testing::fake
