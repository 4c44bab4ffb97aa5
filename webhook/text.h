// Text that comes from outside and goes back out: checked on the way in, cut and cleaned on the way out.
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace plimsoll::webhook {

// True when a JSON text is UTF-8 throughout and its \u escapes pair their surrogates, so that every string in
// it is UTF-8 too. jsoncpp checks neither.
bool is_utf8_json(std::string_view json);

// At most `limit` bytes of valid UTF-8 on one line: control characters become spaces, bytes that are no UTF-8
// become '?', and what was cut off shows as "...".
std::string one_line(std::string_view text, std::size_t limit);

}  // namespace plimsoll::webhook
