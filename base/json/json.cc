#include "base/json/json.h"

#include <json/reader.h>
#include <json/writer.h>
#include <utility>

#include <algorithm>
#include <boost/algorithm/string/erase.hpp>
#include <boost/algorithm/string/trim_all.hpp>
#include <charconv>
#include <exception>
#include <memory>
#include <optional>

#include "base/utf8.h"

namespace plimsoll {
namespace {

constexpr unsigned kDoubleDigits = 17;  // enough to read the same double back

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Characters of the number that the text begins with, by RFC 8259; 0: it begins with none.
std::size_t number_length(std::string_view text) {
  std::size_t i = 0;
  const auto digits = [&] {
    const std::size_t begin = i;
    while (i < text.size() && is_digit(text[i])) {
      ++i;
    }
    return i - begin;
  };
  const auto take = [&](std::string_view any_of) {
    const bool found = i < text.size() && any_of.find(text[i]) != std::string_view::npos;
    i += found ? 1 : 0;
    return found;
  };
  take("-");
  const bool zero = i < text.size() && text[i] == '0';
  const std::size_t whole = digits();
  if (whole == 0 || (zero && whole > 1) || (take(".") && digits() == 0)) {
    return 0;
  }
  if (take("eE")) {
    take("+-");
    if (digits() == 0) {
      return 0;
    }
  }
  return i;
}

// The UTF-16 unit of an escape like \ud83d; nothing when the text does not begin with one.
std::optional<unsigned> escaped_unit(std::string_view text) {
  constexpr std::size_t kLength = 6;
  if (!text.starts_with("\\u") || text.size() < kLength) {
    return std::nullopt;
  }
  unsigned unit = 0;
  const char* const end = text.data() + kLength;
  const auto [stop, failure] = std::from_chars(text.data() + 2, end, unit, 16);
  return failure == std::errc() && stop == end ? std::optional(unit) : std::nullopt;
}

// Bytes of the escape that the text begins with; 0: it is half of a surrogate pair, which is not a character and
// cannot be written as UTF-8. jsoncpp refuses malformed escapes.
std::size_t escape_length(std::string_view text) {
  const std::optional<unsigned> unit = escaped_unit(text);
  if (!unit) {
    return 2;
  }
  constexpr std::size_t kLength = 6;
  const auto is_among = [](unsigned value, unsigned first) {
    return value >= first && value < first + 0x400;
  };
  if (is_among(*unit, 0xd800)) {
    const std::optional<unsigned> low = escaped_unit(text.substr(kLength));
    return low && is_among(*low, 0xdc00) ? 2 * kLength : 0;
  }
  return is_among(*unit, 0xdc00) ? 0 : kLength;
}

// Refuses what jsoncpp accepts and RFC 8259 does not: numbers like 01, 1. and +1, bare control characters,
// broken UTF-8 and halves of surrogate pairs in strings. Also limits the nesting: jsoncpp recurses once a level
// and throws at its own limit; counting first keeps the stack small.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  Result<void> scan() {
    int depth = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      const bool begins_number = is_digit(c) || c == '-' || c == '+' || c == '.';
      const std::size_t length = c == '"'        ? string_length()
                                 : begins_number ? number_length(text_.substr(at_))
                                                 : 1;
      if (c == '\0') {
        return wrong("a NUL character");
      }
      if (length == 0) {
        return wrong(c == '"' ? "a string with a control character, broken UTF-8 or half of a surrogate pair"
                              : "not a number");
      }
      depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
      if (depth > kJsonDepthLimit) {
        return wrong("nested deeper than " + std::to_string(kJsonDepthLimit) + " levels");
      }
      at_ += length;
    }
    return {};
  }

 private:
  // Up to and including the closing quote, or to the end of the text, where jsoncpp reports what is missing.
  std::size_t string_length() const {
    std::size_t i = at_ + 1;
    while (i < text_.size() && text_[i] != '"') {
      if (static_cast<unsigned char>(text_[i]) < 0x20) {
        return 0;
      }
      const std::string_view rest = text_.substr(i);
      const std::size_t character = rest.front() == '\\' ? escape_length(rest) : utf8_length(rest);
      if (character == 0) {
        return 0;
      }
      i += character;
    }
    return std::min(i + 1, text_.size()) - at_;
  }

  Error wrong(const std::string& what) const {
    const std::string_view before = text_.substr(0, at_);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::size_t column = at_ - (before.rfind('\n') + 1) + 1;
    return invalid(
        "not valid JSON: Line " + std::to_string(line) + ", Column " + std::to_string(column) + " " + what,
        std::string(text_.substr(at_, 40)));
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

::Json::CharReaderBuilder strict_reader() {
  ::Json::CharReaderBuilder builder;
  ::Json::CharReaderBuilder::strictMode(&builder.settings_);
  // Strict mode demands an object or array at the root; a JSON text may be any value (RFC 8259).
  builder["strictRoot"] = false;
  builder["stackLimit"] = kJsonDepthLimit + 1;
  return builder;
}

void write_escaped(char c, std::string& to) {
  switch (c) {
    case '"': to += "\\\""; break;
    case '\\': to += "\\\\"; break;
    case '\b': to += "\\b"; break;
    case '\f': to += "\\f"; break;
    case '\n': to += "\\n"; break;
    case '\r': to += "\\r"; break;
    case '\t': to += "\\t"; break;
    default: {
      static constexpr std::string_view kHex = "0123456789abcdef";
      to += "\\u00";
      to += kHex[static_cast<unsigned char>(c) >> 4];
      to += kHex[static_cast<unsigned char>(c) & 15];
    }
  }
}

void write_text(std::string_view text, std::string& to) {
  to += '"';
  std::size_t plain = 0;  // begin of the text that is not yet written and needs no escape
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20) {
      to += text.substr(plain, i - plain);
      write_escaped(c, to);
      plain = i + 1;
    }
  }
  to += text.substr(plain);
  to += '"';
}

std::string_view text_between(const char* begin, const char* end) {
  return {begin, static_cast<std::size_t>(end - begin)};
}

// jsoncpp's own writer is a stream, set up anew for each value: most of the time that a short one takes.
void write_value(const Json& value, std::string& to) {
  switch (value.type()) {
    case ::Json::nullValue: to += "null"; break;
    case ::Json::booleanValue: to += value.asBool() ? "true" : "false"; break;
    case ::Json::intValue: to += std::to_string(value.asLargestInt()); break;
    case ::Json::uintValue: to += std::to_string(value.asLargestUInt()); break;
    case ::Json::realValue: to += ::Json::valueToString(value.asDouble(), kDoubleDigits); break;
    case ::Json::stringValue: {
      const char* begin = nullptr;
      const char* end = nullptr;
      value.getString(&begin, &end);
      write_text(text_between(begin, end), to);
      break;
    }
    case ::Json::arrayValue:
      to += '[';
      for (::Json::ArrayIndex i = 0; i < value.size(); ++i) {
        to += i == 0 ? "" : ",";
        write_value(value[i], to);
      }
      to += ']';
      break;
    case ::Json::objectValue: {
      to += '{';
      bool first = true;
      for (auto member = value.begin(); member != value.end(); ++member) {
        to += first ? "" : ",";
        first = false;
        const char* end = nullptr;
        const char* begin = member.memberName(&end);
        write_text(text_between(begin, end), to);
        to += ':';
        write_value(*member, to);
      }
      to += '}';
    }
  }
}

}  // namespace

Result<Json> parse_json(std::string_view text) {
  Result<void> scanned = Scanner(text).scan();
  if (!scanned) {
    return scanned.error();
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
  // jsoncpp's message has several lines ("* Line 1, Column 2\n  Syntax error..."); make it one.
  std::string message = boost::algorithm::erase_all_copy(problems, "*");
  boost::algorithm::trim_fill(message, " ");
  return invalid("not valid JSON: " + message.substr(0, 300), std::string(text.substr(0, 40)));
}

std::string write_json(const Json& value) {
  std::string text;
  write_value(value, text);
  return text;
}

std::string write_json_pretty(const Json& value) {
  ::Json::StreamWriterBuilder builder;
  builder["indentation"] = "  ";
  builder["commentStyle"] = "None";
  builder["emitUTF8"] = true;
  builder["precision"] = kDoubleDigits;
  return ::Json::writeString(builder, value);
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
  return found.isString() ? found.asString() : std::move(otherwise);
}

}  // namespace plimsoll
