#include <utility>  // which Boost 1.74 needs first

#include <boost/asio/ip/address.hpp>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <regex>

#include "base/base64.h"
#include "tests/fake_apiserver/schema.h"

namespace plimsoll::testing::fake {
namespace {

std::string type_name(const Json& value) {
  switch (value.type()) {
    case ::Json::nullValue: return "null";
    case ::Json::booleanValue: return "boolean";
    case ::Json::stringValue: return "string";
    case ::Json::arrayValue: return "array";
    case ::Json::objectValue: return "object";
    default: return value.isInt64() ? "integer" : "number";  // schema.h: write_integers
  }
}

std::string quoted(const std::string& text) {
  return write_json(Json(text));
}

std::size_t code_points(const std::string& text) {
  std::size_t count = 0;
  for (const char c : text) {
    count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  }
  return count;
}

bool is_date(const std::string& text) {
  static const std::regex form(R"((\d{4})-(\d{2})-(\d{2}))");
  std::smatch part;
  return std::regex_match(text, part, form) &&
         std::chrono::year_month_day(std::chrono::year(std::stoi(part[1])),
                                     std::chrono::month(static_cast<unsigned>(std::stoi(part[2]))),
                                     std::chrono::day(static_cast<unsigned>(std::stoi(part[3]))))
             .ok();
}

bool is_date_time(const std::string& text) {
  static const std::regex form(R"((.{10})[Tt]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?([Zz]|[+-]\d{2}:\d{2}))");
  std::smatch part;
  return std::regex_match(text, part, form) && is_date(part[1]);
}

bool is_uuid(const std::string& text) {
  static const std::regex form("[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}",
                               std::regex::ECMAScript | std::regex::icase);
  return std::regex_match(text, form);
}

template <class Address>
bool is_address(const std::string& text) {
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(text, error);
  return !error && (std::is_same_v<Address, boost::asio::ip::address_v4> ? address.is_v4() : address.is_v6());
}

using FormatCheck = bool (*)(const std::string& text);

// The formats that are evaluated; those of numbers have no check of their text.
const std::map<std::string, FormatCheck>& formats() {
  static const std::map<std::string, FormatCheck> known = {
      {"byte", [](const std::string& text) { return !text.empty() && base64_decode(text).ok(); }},
      {"date", is_date},
      {"date-time", is_date_time},
      {"double", nullptr},
      {"float", nullptr},
      {"int32", nullptr},
      {"int64", nullptr},
      {"ipv4", is_address<boost::asio::ip::address_v4>},
      {"ipv6", is_address<boost::asio::ip::address_v6>},
      {"uuid", is_uuid}};
  return known;
}

// The format, when it is evaluated.
std::string format_of(const Json& schema) {
  const std::string format = text_member(schema, {"format"});
  return formats().contains(format) ? format : "";
}

// The format that kube-apiserver infers for a value that is neither a string nor a list.
std::string decoded_format(const Json& value) {
  return value.isInt64() ? "int64" : value.isNumeric() ? "float64" : "";
}

class Validator {
 public:
  void run(const Json& value, const Json& schema, const std::string& path) {
    if (value.isNull() && is_set(schema, "nullable")) {
      return;
    }
    const bool fits = check_type(value, schema, path);
    check_enum(value, schema, path);
    if (value.isNumeric() && text_member(schema, {"type"}) != "string") {
      check_number(value, schema, path);
    }
    if (!fits) {
      return;
    }
    if (value.isString()) {
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
    const std::string type = text_member(schema, {"type"});
    if (is_set(schema, "x-kubernetes-int-or-string")) {
      return actual == "integer" || actual == "string" || wrong_type(path, "integer,string", actual);
    }
    if (type.empty() || type == actual || (type == "number" && actual == "integer")) {
      return true;
    }
    const std::string format = format_of(schema);
    if (format.empty() || value.isNull()) {
      return wrong_type(path, type, actual);
    }
    if (!value.isString() && !value.isArray()) {
      return wrong_type(path, format, decoded_format(value));
    }
    // kube-apiserver accepts a list where a string with a format is expected.
    return type == "string" || wrong_type(path, type, actual);
  }

  bool wrong_type(const std::string& path, const std::string& expected, const std::string& actual) {
    add("FieldValueTypeInvalid",
        "Invalid value: " + quoted(actual) + ": " + path + " in body must be of type " + expected + ": " +
            quoted(actual),
        path);
    return false;
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
      supported += (supported.empty() ? "" : ", ") + quoted(each.asString());
    }
    add("FieldValueNotSupported",
        "Unsupported value: " + write_json(value) + ": supported values: " + supported, path);
  }

  void check_number(const Json& value, const Json& schema, const std::string& path) {
    const std::string format = format_of(schema);
    if (text_member(schema, {"type"}) == "integer" &&
        (!value.isInt64() || (format == "int32" && !value.isInt()))) {
      add("FieldValueInvalid",
          "Invalid value: \"\": Checked value must be of type integer " +
              (format.empty() ? "(default format)" : "with format " + format) + " in " + path,
          "");
    }
    check_bound(value, schema, path, "minimum", "exclusiveMinimum", "greater than");
    check_bound(value, schema, path, "maximum", "exclusiveMaximum", "less than");
    const Json& factor = member(schema, {"multipleOf"});
    if (factor.isNumeric() && std::remainder(value.asDouble(), factor.asDouble()) != 0) {
      add_invalid(write_json(value), path, "should be a multiple of " + write_json(factor));
    }
  }

  void check_bound(const Json& value, const Json& schema, const std::string& path, const char* keyword,
                   const char* exclusive_keyword, const std::string& relation) {
    const Json& bound = member(schema, {keyword});
    if (!bound.isNumeric()) {
      return;
    }
    const bool exclusive = is_set(schema, exclusive_keyword);
    const double above = value.asDouble() - bound.asDouble();
    const bool inside = relation == "less than" ? above < 0 : above > 0;
    if (!inside && (exclusive || above != 0)) {
      add_invalid(write_json(value), path,
                  "should be " + relation + (exclusive ? " " : " or equal to ") + write_json(bound));
    }
  }

  // The number of items of a list or of members of an object.
  void check_count(std::size_t count, const Json& schema, const std::string& path, const std::string& limit,
                   const std::string& unit) {
    const Json& most = member(schema, {"max" + limit});
    if (most.isUInt64() && count > most.asUInt64()) {
      add("FieldValueTooMany",
          "Too many: " + std::to_string(count) + ": must have at most " + most.asString() +
              (most.asUInt64() == 1 ? " item" : " items"),
          path);
    }
    const Json& least = member(schema, {"min" + limit});
    if (least.isUInt64() && count < least.asUInt64()) {
      add_invalid(std::to_string(count), path, "should have at least " + least.asString() + " " + unit);
    }
  }

  // Reports only the first violation, as kube-apiserver does.
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
        // Compiling takes longer than matching, and a schema has few patterns.
        thread_local std::map<std::string, std::regex> compiled;
        if (!std::regex_search(text, compiled.try_emplace(pattern, pattern).first->second)) {
          add_invalid(quoted(text), path, "should match '" + pattern + "'");
        }
      } catch (const std::regex_error&) {
        add_invalid(quoted(text), path, "should match '" + pattern + "', which is no regular expression");
      }
    }
    const std::string format = format_of(schema);
    if (const FormatCheck check = format.empty() ? nullptr : formats().at(format); check && !check(text)) {
      wrong_type(path, format, text);
    }
  }

  void check_array(const Json& value, const Json& schema, const std::string& path) {
    check_count(value.size(), schema, path, "Items", "items");
    const Json& items = member(schema, {"items"});
    for (Json::ArrayIndex i = 0; items.isObject() && i < value.size(); ++i) {
      run(value[i], items, path + "[" + std::to_string(i) + "]");
    }
  }

  void check_object(const Json& value, const Json& schema, const std::string& path) {
    const std::string prefix = path.empty() ? "" : path + ".";
    const auto require = [&](const std::string& name) {
      if (!value.isMember(name)) {
        add("FieldValueRequired", "Required value", prefix + name);
      }
    };
    for (const Json& name : member(schema, {"required"})) {
      require(name.asString());
    }
    if (is_set(schema, "x-kubernetes-embedded-resource")) {
      require("apiVersion");
      require("kind");
    }
    check_count(value.size(), schema, path, "Properties", "properties");
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

  static std::vector<Cause> problems(const Json& value, const Json& schema, const std::string& path) {
    Validator alternative;
    alternative.run(value, schema, path);
    return std::move(alternative.causes);
  }

  // Returns how many alternatives accept the value; if none does, adds the causes of the first.
  std::size_t count_accepting(const Json& value, const Json& alternatives, const std::string& path,
                              const std::string& none) {
    std::vector<Cause> first;
    std::size_t accepting = 0;
    for (const Json& each : alternatives) {
      std::vector<Cause> found = problems(value, each, path);
      accepting += found.empty() ? 1 : 0;
      if (first.empty()) {
        first = std::move(found);
      }
    }
    if (accepting == 0) {
      add_rule(path, none);
      causes.insert(causes.end(), first.begin(), first.end());
    }
    return accepting;
  }

  void add_rule(const std::string& path, const std::string& rule) {
    add("FieldValueInvalid", "Invalid value: \"\": " + quoted(path) + " " + rule, "");
  }

  void check_combinations(const Json& value, const Json& schema, const std::string& path) {
    const std::size_t before = causes.size();
    for (const Json& each : member(schema, {"allOf"})) {
      run(value, each, path);
    }
    if (causes.size() > before) {
      add_rule(path, "must validate all the schemas (allOf)");
    }
    if (const Json& any = member(schema, {"anyOf"}); any.isArray()) {
      count_accepting(value, any, path, "must validate at least one schema (anyOf)");
    }
    if (const Json& one = member(schema, {"oneOf"}); one.isArray()) {
      const std::string rule = "must validate one and only one schema (oneOf). Found ";
      const std::size_t accepting = count_accepting(value, one, path, rule + "none valid");
      if (accepting > 1) {
        add_rule(path, rule + std::to_string(accepting) + " valid alternatives");
      }
    }
    if (const Json& no = member(schema, {"not"}); no.isObject() && problems(value, no, path).empty()) {
      add_rule(path, "must not validate the schema (not)");
    }
  }
};

// Checks x-kubernetes-list-type of one list: entries of a set differ, and so do the keys of a map's entries.
void check_list_type(const Json& list, const Json& schema, const std::string& path,
                     std::vector<Cause>& causes) {
  const std::string kind = text_member(schema, {"x-kubernetes-list-type"});
  if (kind != "set" && kind != "map") {
    return;
  }
  std::map<std::string, int> seen;
  for (Json::ArrayIndex i = 0; i < list.size(); ++i) {
    const std::string field = path + "[" + std::to_string(i) + "]";
    Json identity = list[i];
    if (identity.isNull()) {
      continue;
    }
    if (kind == "map" && !identity.isObject()) {
      causes.push_back(
          {"FieldValueInvalid",
           "Invalid value: " + write_json(identity) + ": must be an object for an array of list-type map",
           field});
      continue;
    }
    if (kind == "map") {
      Json keys(::Json::objectValue);
      for (const Json& key : member(schema, {"x-kubernetes-list-map-keys"})) {
        if (identity.isMember(key.asString())) {
          keys[key.asString()] = identity[key.asString()];
        }
      }
      identity = std::move(keys);
    }
    const std::string text = write_json(identity);
    if (++seen[text] == 2) {  // a third one is not reported
      causes.push_back({"FieldValueDuplicate", "Duplicate value: " + text, field});
    }
  }
}

// Calls check_list_type for every list below `value`.
void check_list_types(const Json& value, const Json& schema, const std::string& path,
                      std::vector<Cause>& causes) {
  if (value.isArray()) {
    check_list_type(value, schema, path, causes);
    for (Json::ArrayIndex i = 0; i < value.size(); ++i) {
      check_list_types(value[i], member(schema, {"items"}), path + "[" + std::to_string(i) + "]", causes);
    }
  } else if (value.isObject()) {
    const Json& properties = member(schema, {"properties"});
    for (const std::string& name : value.getMemberNames()) {
      const Json& property = member(properties, {name});
      check_list_types(value[name], property.isNull() ? member(schema, {"additionalProperties"}) : property,
                       path.empty() ? name : path + "." + name, causes);
    }
  }
}

}  // namespace

std::vector<Cause> validate_schema(const Json& object, const Json& schema) {
  Validator validator;
  validator.run(object, schema, "");
  check_list_types(object, schema, "", validator.causes);
  return std::move(validator.causes);
}

bool evaluates_format(const std::string& format) {
  return formats().contains(format);
}

}  // namespace plimsoll::testing::fake
