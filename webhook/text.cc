#include "webhook/text.h"

#include <cstdint>
#include <optional>

namespace plimsoll::webhook {
namespace {

// The length of the UTF-8 sequence that begins at text[at] (RFC 3629: no overlong forms, no surrogates, at
// most U+10FFFF); 0 when there is none.
std::size_t sequence_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) {
    return 1;
  }
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() - at < length) {
    return 0;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) {
      return 0;
    }
  }
  const unsigned char second = byte(1);
  const bool outside = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                       (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F);
  return outside ? 0 : length;
}

// The code unit of "\uXXXX" at text[at]; nothing when there is no such escape.
std::optional<std::uint32_t> escaped_unit(std::string_view text, std::size_t at) {
  if (text.size() - at < 6 || text[at] != '\\' || text[at + 1] != 'u') {
    return std::nullopt;
  }
  std::uint32_t unit = 0;
  for (std::size_t i = at + 2; i < at + 6; ++i) {
    const char c = text[i];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) {
      return std::nullopt;
    }
    unit = unit * 16 + static_cast<std::uint32_t>(digit);
  }
  return unit;
}

// How far the escape at text[at] (a backslash) reaches; 0 when it is half a surrogate pair. Escapes that are
// wrong in other ways are the JSON parser's to refuse.
std::size_t escape_length(std::string_view text, std::size_t at) {
  const std::optional<std::uint32_t> unit = escaped_unit(text, at);
  if (!unit) {
    return 2;
  }
  if (*unit >= 0xDC00 && *unit <= 0xDFFF) {
    return 0;
  }
  if (*unit < 0xD800 || *unit > 0xDBFF) {
    return 6;
  }
  const std::optional<std::uint32_t> low = escaped_unit(text, at + 6);
  return low && *low >= 0xDC00 && *low <= 0xDFFF ? 12 : 0;
}

}  // namespace

bool is_utf8_json(std::string_view json) {
  for (std::size_t at = 0; at < json.size();) {
    const std::size_t length = json[at] == '\\' ? escape_length(json, at) : sequence_length(json, at);
    if (length == 0) {
      return false;
    }
    at += length;
  }
  return true;
}

std::string one_line(std::string_view text, std::size_t limit) {
  std::string line;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = sequence_length(text, at);
    const bool control = length == 1 && (static_cast<unsigned char>(text[at]) < 0x20 || text[at] == 0x7F);
    const std::string_view piece = length == 0 ? "?" : control ? " " : text.substr(at, length);
    if (line.size() + piece.size() > limit) {
      while (!line.empty() && line.size() + 3 > limit) {
        while ((line.back() & 0xC0) == 0x80) {
          line.pop_back();
        }
        line.pop_back();
      }
      return limit < 3 ? "" : line + "...";
    }
    line += piece;
    at += length == 0 ? 1 : length;
  }
  return line;
}

}  // namespace plimsoll::webhook
