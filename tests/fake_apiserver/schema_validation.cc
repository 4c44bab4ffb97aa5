#include <cmath>
#include <cstdint>
#include <limits>
#include <regex>
#include <set>

#include "tests/fake_apiserver/schema.h"

namespace plimsoll::testing::fake {
namespace {

bool flag(const Json& schema, const char* name) {
  const Json& value = member(schema, {name});
  return value.isBool() && value.asBool();
}

bool is_whole(const Json& value) {
  // Beyond 64 bits it counts as a real number.
  return value.isIntegral() || (value.isDouble() && std::floor(value.asDouble()) == value.asDouble() &&
                                std::abs(value.asDouble()) < 9.2e18);
}

std::string type_name(const Json& value) {
  switch (value.type()) {
    case ::Json::nullValue: return "null";
    case ::Json::booleanValue: return "boolean";
    case ::Json::stringValue: return "string";
    case ::Json::arrayValue: return "array";
    case ::Json::objectValue: return "object";
    default: return is_whole(value) ? "integer" : "number";
  }
}

std::string quoted(const std::string& text) {
  return write_json(Json(text));
}

std::string number_text(const Json& value) {
  return is_whole(value) && std::abs(value.asDouble()) < 1e15
             ? std::to_string(static_cast<std::int64_t>(value.asDouble()))
             : write_json(value);
}

std::string items_text(std::uint64_t count) {
  return std::to_string(count) + (count == 1 ? " item" : " items");
}

std::size_t code_points(const std::string& text) {
  std::size_t count = 0;
  for (const char c : text) {
    count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  }
  return count;
}

bool has_format(const std::string& text, const std::string& format) {
  static const std::regex date_time(
      R"(\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2}))");
  static const std::regex date(R"(\d{4}-\d{2}-\d{2})");
  if (format == "date-time") {
    return std::regex_match(text, date_time);
  }
  if (format == "date") {
    return std::regex_match(text, date);
  }
  return true;
}

class Validator {
 public:
  void run(const Json& value, const Json& schema, const std::string& path) {
    if (value.isNull() && flag(schema, "nullable")) {
      return;
    }
    const bool fits = check_type(value, schema, path);
    check_enum(value, schema, path);
    if (!fits) {
      return;
    }
    if (value.isNumeric()) {
      check_number(value, schema, path);
    } else if (value.isString()) {
      check_string(value.asString(), schema, path);
    } else if (value.isArray()) {
      check_array(value, schema, path);
    } else if (value.isObject()) {
      check_object(value, schema, path);
    }
    check_combinations(value, schema, path);
  }

  std::vector<Cause> causes;

 private:
  void add(const char* reason, std::string message, std::string path) {
    causes.push_back({reason, std::move(message), path.empty() ? "<nil>" : std::move(path)});
  }

  // "Invalid value: 0: spec.size in body should be ..."
  void add_invalid(const std::string& value, const std::string& path, const std::string& rule) {
    add("FieldValueInvalid", "Invalid value: " + value + ": " + path + " in body " + rule, path);
  }

  bool check_type(const Json& value, const Json& schema, const std::string& path) {
    const std::string actual = type_name(value);
    std::string wanted = text_member(schema, {"type"});
    bool fits = wanted.empty() || wanted == actual || (wanted == "number" && actual == "integer");
    if (flag(schema, "x-kubernetes-int-or-string")) {
      wanted = "integer,string";
      fits = actual == "integer" || actual == "string";
    }
    if (!fits) {
      const std::string shown = quoted(actual);
      add("FieldValueTypeInvalid",
          "Invalid value: " + shown + ": " + path + " in body must be of type " + wanted + ": " + shown,
          path);
    }
    return fits;
  }

  void check_enum(const Json& value, const Json& schema, const std::string& path) {
    const Json& allowed = member(schema, {"enum"});
    if (!allowed.isArray()) {
      return;
    }
    std::string supported;
    for (const Json& each : allowed) {
      if (each == value) {
        return;
      }
      supported += (supported.empty() ? "" : ", ") + write_json(each);
    }
    add("FieldValueNotSupported",
        "Unsupported value: " + write_json(value) + ": supported values: " + supported, path);
  }

  void check_number(const Json& value, const Json& schema, const std::string& path) {
    const double number = value.asDouble();
    const std::string format = text_member(schema, {"format"});
    const bool beyond_int32 = number < std::numeric_limits<std::int32_t>::min() ||
                              number > std::numeric_limits<std::int32_t>::max();
    if (text_member(schema, {"type"}) == "integer" && format == "int32" && beyond_int32) {
      add("FieldValueInvalid",
          "Invalid value: \"\": Checked value must be of type integer with format int32 in " + path, "");
    }
    const Json& minimum = member(schema, {"minimum"});
    if (minimum.isNumeric()) {
      if (flag(schema, "exclusiveMinimum") && number <= minimum.asDouble()) {
        add_invalid(number_text(value), path, "should be greater than " + number_text(minimum));
      } else if (number < minimum.asDouble()) {
        add_invalid(number_text(value), path, "should be greater than or equal to " + number_text(minimum));
      }
    }
    const Json& maximum = member(schema, {"maximum"});
    if (maximum.isNumeric()) {
      if (flag(schema, "exclusiveMaximum") && number >= maximum.asDouble()) {
        add_invalid(number_text(value), path, "should be less than " + number_text(maximum));
      } else if (number > maximum.asDouble()) {
        add_invalid(number_text(value), path, "should be less than or equal to " + number_text(maximum));
      }
    }
    const Json& factor = member(schema, {"multipleOf"});
    if (factor.isNumeric() && std::remainder(number, factor.asDouble()) != 0) {
      add_invalid(number_text(value), path, "should be a multiple of " + number_text(factor));
    }
  }

  // Says only the first thing that is wrong, as kube-apiserver does.
  void check_string(const std::string& text, const Json& schema, const std::string& path) {
    const Json& longest = member(schema, {"maxLength"});
    if (longest.isUInt64() && code_points(text) > longest.asUInt64()) {
      add("FieldValueTooLong", "Too long: may not be more than " + longest.asString() + " bytes", path);
      return;
    }
    const Json& shortest = member(schema, {"minLength"});
    if (shortest.isUInt64() && code_points(text) < shortest.asUInt64()) {
      add_invalid(quoted(text), path, "should be at least " + shortest.asString() + " chars long");
      return;
    }
    const std::string pattern = text_member(schema, {"pattern"});
    if (!pattern.empty()) {
      try {
        if (!std::regex_search(text, std::regex(pattern, std::regex::ECMAScript))) {
          add_invalid(quoted(text), path, "should match '" + pattern + "'");
        }
      } catch (const std::regex_error&) {
        add_invalid(quoted(text), path, "should match '" + pattern + "', which is no regular expression");
      }
    }
    const std::string format = text_member(schema, {"format"});
    if (!has_format(text, format)) {
      add("FieldValueTypeInvalid",
          "Invalid value: " + quoted(text) + ": " + path + " in body must be of type " + format + ": " +
              quoted(text),
          path);
    }
  }

  void check_array(const Json& value, const Json& schema, const std::string& path) {
    const Json& most = member(schema, {"maxItems"});
    if (most.isUInt64() && value.size() > most.asUInt64()) {
      add("FieldValueTooMany",
          "Too many: " + std::to_string(value.size()) + ": must have at most " + items_text(most.asUInt64()),
          path);
    }
    const Json& least = member(schema, {"minItems"});
    if (least.isUInt64() && value.size() < least.asUInt64()) {
      add_invalid(std::to_string(value.size()), path, "should have at least " + least.asString() + " items");
    }
    const Json& items = member(schema, {"items"});
    for (Json::ArrayIndex i = 0; items.isObject() && i < value.size(); ++i) {
      run(value[i], items, path + "[" + std::to_string(i) + "]");
    }
    check_duplicates(value, schema, path);
  }

  void check_duplicates(const Json& value, const Json& schema, const std::string& path) {
    const std::string kind = text_member(schema, {"x-kubernetes-list-type"});
    if (kind != "set" && kind != "map") {
      return;
    }
    std::set<std::string> seen;
    for (Json::ArrayIndex i = 0; i < value.size(); ++i) {
      Json identity = value[i];
      if (kind == "map") {
        identity = Json(::Json::objectValue);
        for (const Json& key : member(schema, {"x-kubernetes-list-map-keys"})) {
          identity[key.asString()] = member(value[i], {key.asString()});
        }
      }
      const std::string text = write_json(identity);
      if (!seen.insert(text).second) {
        add("FieldValueDuplicate", "Duplicate value: " + text, path + "[" + std::to_string(i) + "]");
      }
    }
  }

  void check_object(const Json& value, const Json& schema, const std::string& path) {
    const std::string prefix = path.empty() ? "" : path + ".";
    for (const Json& name : member(schema, {"required"})) {
      if (!value.isMember(name.asString())) {
        add("FieldValueRequired", "Required value", prefix + name.asString());
      }
    }
    const Json& most = member(schema, {"maxProperties"});
    if (most.isUInt64() && value.size() > most.asUInt64()) {
      add("FieldValueTooMany",
          "Too many: " + std::to_string(value.size()) + ": must have at most " + items_text(most.asUInt64()),
          path);
    }
    const Json& least = member(schema, {"minProperties"});
    if (least.isUInt64() && value.size() < least.asUInt64()) {
      add_invalid(std::to_string(value.size()), path,
                  "should have at least " + least.asString() + " properties");
    }
    const Json& properties = member(schema, {"properties"});
    const Json& rest = member(schema, {"additionalProperties"});
    for (const std::string& name : value.getMemberNames()) {
      if (properties.isObject() && properties.isMember(name)) {
        run(value[name], properties[name], prefix + name);
      } else if (rest.isObject()) {
        run(value[name], rest, prefix + name);
      }
    }
  }

  static bool accepts(const Json& value, const Json& schema, const std::string& path) {
    Validator alternative;
    alternative.run(value, schema, path);
    return alternative.causes.empty();
  }

  void check_combinations(const Json& value, const Json& schema, const std::string& path) {
    for (const Json& each : member(schema, {"allOf"})) {
      run(value, each, path);
    }
    const auto count = [&](const char* combination) {
      std::size_t fitting = 0;
      for (const Json& each : member(schema, {combination})) {
        fitting += accepts(value, each, path) ? 1 : 0;
      }
      return fitting;
    };
    const auto complain = [&](const std::string& rule) {
      add("FieldValueInvalid", "Invalid value: \"\": " + quoted(path) + " " + rule, "");
    };
    if (member(schema, {"anyOf"}).isArray() && count("anyOf") == 0) {
      complain("must validate at least one schema (anyOf)");
    }
    if (member(schema, {"oneOf"}).isArray()) {
      const std::size_t fitting = count("oneOf");
      if (fitting == 0) {
        complain("must validate one and only one schema (oneOf). Found none valid");
      } else if (fitting > 1) {
        complain("must validate one and only one schema (oneOf). Found " + std::to_string(fitting) +
                 " valid alternatives");
      }
    }
    const Json& excluded = member(schema, {"not"});
    if (excluded.isObject() && accepts(value, excluded, path)) {
      complain("must not validate the schema (not)");
    }
  }
};

}  // namespace

std::vector<Cause> validate_schema(const Json& object, const Json& schema) {
  Validator validator;
  validator.run(object, schema, "");
  return std::move(validator.causes);
}

}  // namespace plimsoll::testing::fake
