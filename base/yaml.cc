#include "base/yaml.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <optional>
#include <set>
#include <string>

namespace plimsoll {
namespace {

bool one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

Error yaml_error(const YAML::Mark& mark, const std::string& message, std::string fragment = {}) {
  std::string where;
  if (!mark.is_null()) {
    where = "line " + std::to_string(mark.line + 1) + ", column " + std::to_string(mark.column + 1) + ": ";
  }
  return invalid("not valid YAML: " + where + message, fragment.substr(0, 64));
}

std::optional<Json> resolve_integer(std::string_view text) {
  bool negative = false;
  std::string_view digits = text;
  if (!digits.empty() && (digits.front() == '-' || digits.front() == '+')) {
    negative = digits.front() == '-';
    digits.remove_prefix(1);
  }
  int radix = 10;
  if (digits.size() > 1 && digits.front() == '0') {
    const char kind = digits[1];
    const bool named = kind == 'x' || kind == 'o' || kind == 'b';
    radix = kind == 'x' ? 16 : kind == 'b' ? 2 : 8;
    digits.remove_prefix(named ? 2 : 1);
  }
  std::uint64_t magnitude = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, failure] = std::from_chars(digits.data(), end, magnitude, radix);
  if (digits.empty() || failure != std::errc() || stop != end) {
    return std::nullopt;
  }
  constexpr std::uint64_t kSignBit = 1ULL << 63;
  if (!negative) {
    return magnitude < kSignBit ? Json(static_cast<::Json::Int64>(magnitude))
                                : Json(::Json::UInt64{magnitude});
  }
  if (magnitude > kSignBit) {
    return std::nullopt;
  }
  return Json(static_cast<::Json::Int64>(~magnitude + 1));
}

std::optional<double> resolve_real(std::string_view text) {
  std::string_view digits = text;
  if (!digits.empty() && digits.front() == '+') {
    digits.remove_prefix(1);
  }
  const std::size_t first = digits.find_first_of("0123456789.");
  if (first == std::string_view::npos || first > (digits.front() == '-' ? 1U : 0U)) {
    return std::nullopt;
  }
  double value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, failure] = std::from_chars(digits.data(), end, value);
  if (stop != end || failure == std::errc::invalid_argument) {
    return std::nullopt;
  }
  return failure == std::errc() ? value : std::numeric_limits<double>::infinity();
}

// A plain (unquoted) scalar.
Result<Json> resolve(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (one_of(text, {"", "~", "null", "Null", "NULL"})) {
    return Json();
  }
  if (one_of(text, {"true", "True", "TRUE", "y", "Y", "yes", "Yes", "YES", "on", "On", "ON"})) {
    return Json(true);
  }
  if (one_of(text, {"false", "False", "FALSE", "n", "N", "no", "No", "NO", "off", "Off", "OFF"})) {
    return Json(false);
  }
  std::string digits = text;
  std::erase(digits, '_');
  if (std::optional<Json> integer = resolve_integer(digits)) {
    return *std::move(integer);
  }
  if (std::optional<double> real = resolve_real(digits)) {
    if (!std::isfinite(*real)) {
      return yaml_error(node.Mark(), "the number is out of range", text);
    }
    return Json(*real);
  }
  if (one_of(text, {".inf", ".Inf", ".INF", "+.inf", "-.inf", "-.Inf", "-.INF", ".nan", ".NaN", ".NAN"})) {
    return yaml_error(node.Mark(), "infinity and NaN have no place in a Kubernetes object", text);
  }
  return Json(text);
}

class Converter {
 public:
  Result<Json> convert(const YAML::Node& node, int depth) {
    if (depth > kYamlDepthLimit) {
      return yaml_error(node.Mark(), "nested deeper than " + std::to_string(kYamlDepthLimit) +
                                         " levels, or an alias that contains itself");
    }
    if (++nodes_ > kYamlNodeLimit) {
      return yaml_error(node.Mark(),
                        "more than " + std::to_string(kYamlNodeLimit) + " nodes once aliases are followed");
    }
    switch (node.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null: return Json();
      case YAML::NodeType::Scalar: {
        const std::string& tag = node.Tag();
        if (tag == "!" || tag == "tag:yaml.org,2002:str") {
          return Json(node.Scalar());
        }
        return resolve(node);
      }
      case YAML::NodeType::Sequence: return sequence(node, depth);
      case YAML::NodeType::Map: return map(node, depth);
    }
    return yaml_error(node.Mark(), "unknown kind of node");
  }

 private:
  Result<Json> sequence(const YAML::Node& node, int depth) {
    Json array(::Json::arrayValue);
    for (const YAML::Node& element : node) {
      Result<Json> value = convert(element, depth + 1);
      if (!value) {
        return value.error();
      }
      array.append(*std::move(value));
    }
    return array;
  }

  Result<Json> map(const YAML::Node& node, int depth) {
    Json object(::Json::objectValue);
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) {
        return yaml_error(entry.first.Mark(), "a key must be a plain string");
      }
      const std::string& key = entry.first.Scalar();
      if (object.isMember(key)) {
        return yaml_error(entry.first.Mark(), "key stands twice in one map", key);
      }
      Result<Json> value = convert(entry.second, depth + 1);
      if (!value) {
        return value.error();
      }
      object[key] = *std::move(value);
    }
    return object;
  }

  std::size_t nodes_ = 0;
};

void emit(YAML::Emitter& out, const Json& value) {
  switch (value.type()) {
    case ::Json::nullValue: out << YAML::Null; break;
    case ::Json::booleanValue: out << value.asBool(); break;
    case ::Json::intValue: out << value.asInt64(); break;
    case ::Json::uintValue: out << value.asUInt64(); break;
    case ::Json::realValue: out << write_json(value); break;
    case ::Json::stringValue: {
      const std::string text = value.asString();
      YAML::Node plain(text);
      const Result<Json> read = resolve(plain);
      // Quote what would read back as something else than this string.
      const bool ambiguous = !read || !read->isString();
      if (text.find('\n') != std::string::npos) {
        out << YAML::Literal << text;
      } else if (ambiguous) {
        out << YAML::DoubleQuoted << text;
      } else {
        out << text;
      }
      break;
    }
    case ::Json::arrayValue:
      if (value.empty()) {
        out << YAML::Flow << YAML::BeginSeq << YAML::EndSeq;
        break;
      }
      out << YAML::BeginSeq;
      for (const Json& element : value) {
        emit(out, element);
      }
      out << YAML::EndSeq;
      break;
    case ::Json::objectValue:
      if (value.empty()) {
        out << YAML::Flow << YAML::BeginMap << YAML::EndMap;
        break;
      }
      out << YAML::BeginMap;
      for (const std::string& key : value.getMemberNames()) {
        out << YAML::Key << key << YAML::Value;
        emit(out, value[key]);
      }
      out << YAML::EndMap;
      break;
  }
}

}  // namespace

Result<std::vector<Json>> parse_yaml_documents(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) {
    return std::vector<Json>{};
  }
  if (text[first] == '{' || text[first] == '[') {
    Result<Json> json = parse_json(text);
    if (json) {
      return std::vector<Json>{*std::move(json)};
    }
    // Flow-style YAML begins with a brace too: let the YAML reader have the last word, unless the nesting is
    // at fault.
    if (json.error().message.find("nested") != std::string::npos) {
      return json.error();
    }
  }
  if (text.find('\0') != std::string_view::npos) {
    return invalid("not valid YAML: the text holds NUL bytes; is it a binary file?");
  }
  try {
    std::vector<Json> documents;
    for (const YAML::Node& node : YAML::LoadAll(std::string(text))) {
      Result<Json> document = Converter().convert(node, 0);
      if (!document) {
        return document.error();
      }
      if (!document->isNull()) {
        documents.push_back(*std::move(document));
      }
    }
    return documents;
  } catch (const YAML::Exception& problem) {
    return yaml_error(problem.mark, problem.msg);
  } catch (const std::exception& problem) {
    return invalid(std::string("not valid YAML: ") + problem.what());
  }
}

std::string write_yaml(const Json& value) {
  YAML::Emitter out;
  out.SetIndent(2);
  emit(out, value);
  return std::string(out.c_str()) + "\n";
}

}  // namespace plimsoll
