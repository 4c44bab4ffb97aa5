// Text that comes from outside and goes back out, cut and cleaned.
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace plimsoll::webhook {

// At most `limit` bytes of valid UTF-8 on one line: control characters become spaces, bytes that are no UTF-8
// become '?', and what was cut off shows as "...".
std::string one_line(std::string_view text, std::size_t limit);

}  // namespace plimsoll::webhook
