#include "base/json.h"

#include <json/reader.h>
#include <json/writer.h>

#include <exception>
#include <memory>

namespace plimsoll {
namespace {

// jsoncpp recurses once a level and checks its own limit by throwing; counting first keeps the stack ours.
int nesting_of(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

::Json::CharReaderBuilder strict_reader() {
  ::Json::CharReaderBuilder builder;
  ::Json::CharReaderBuilder::strictMode(&builder.settings_);
  // Strict mode demands an object or array at the root; a JSON text may be any value (RFC 8259).
  builder["strictRoot"] = false;
  builder["stackLimit"] = kJsonDepthLimit + 1;
  return builder;
}

std::string write_with(const Json& value, const char* indentation) {
  ::Json::StreamWriterBuilder builder;
  builder["indentation"] = indentation;
  builder["commentStyle"] = "None";
  builder["emitUTF8"] = true;
  builder["precision"] = 17;
  return ::Json::writeString(builder, value);
}

}  // namespace

Result<Json> parse_json(std::string_view text) {
  if (nesting_of(text) > kJsonDepthLimit) {
    return invalid("JSON is nested deeper than " + std::to_string(kJsonDepthLimit) + " levels");
  }
  static thread_local const std::unique_ptr<::Json::CharReader> reader(strict_reader().newCharReader());
  Json value;
  std::string problems;
  try {
    if (reader->parse(text.data(), text.data() + text.size(), &value, &problems)) {
      return value;
    }
  } catch (const std::exception& problem) {
    problems = problem.what();
  }
  // jsoncpp's text runs over several lines ("* Line 1, Column 2\n  Syntax error..."); keep one.
  std::string message;
  for (const char c : problems) {
    if (c == '\n') {
      message += ' ';
    } else if (c != '*' && !(c == ' ' && (message.empty() || message.back() == ' '))) {
      message += c;
    }
  }
  while (!message.empty() && message.back() == ' ') {
    message.pop_back();
  }
  return invalid("not valid JSON: " + message.substr(0, 300), std::string(text.substr(0, 40)));
}

std::string write_json(const Json& value) {
  return write_with(value, "");
}

std::string write_json_pretty(const Json& value) {
  return write_with(value, "  ");
}

const Json& member(const Json& value, std::initializer_list<std::string_view> path) {
  const Json* here = &value;
  for (const std::string_view key : path) {
    if (!here->isObject()) {
      return Json::nullSingleton();
    }
    const Json* next = here->find(key.data(), key.data() + key.size());
    if (next == nullptr) {
      return Json::nullSingleton();
    }
    here = next;
  }
  return *here;
}

std::string text_member(const Json& value, std::initializer_list<std::string_view> path,
                        std::string otherwise) {
  const Json& found = member(value, path);
  return found.isString() ? found.asString() : otherwise;
}

}  // namespace plimsoll
