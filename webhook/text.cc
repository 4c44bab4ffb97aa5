#include "webhook/text.h"

#include "base/utf8.h"

namespace plimsoll::webhook {

std::string one_line(std::string_view text, std::size_t limit) {
  std::string line;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text.substr(at));
    const bool control = length == 1 && (static_cast<unsigned char>(text[at]) < 0x20 || text[at] == 0x7F);
    const std::string_view piece = length == 0 ? "?" : control ? " " : text.substr(at, length);
    line += piece;
    if (line.size() > limit) {
      return utf8_shortened(line, limit);
    }
    at += length == 0 ? 1 : length;
  }
  return line;
}

}  // namespace plimsoll::webhook
