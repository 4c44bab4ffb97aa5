// UTF-8 as RFC 3629 defines it: no overlong forms, no surrogates, nothing beyond U+10FFFF. Pure functions;
// any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace plimsoll {

// The size in bytes of the text's first character; 0 when it does not begin with one. The text must not be empty.
std::size_t utf8_length(std::string_view text);

bool is_utf8(std::string_view text);

// The longest beginning of at most `limit` bytes that does not end within a character.
std::string_view utf8_prefix(std::string_view text, std::size_t limit);

// The text, or its beginning with "..." where it has more than `limit` bytes; empty where "..." does not fit.
std::string utf8_shortened(std::string_view text, std::size_t limit);

}  // namespace plimsoll
