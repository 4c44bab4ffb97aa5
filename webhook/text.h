// Untrusted text, prepared for logs and responses. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace plimsoll::webhook {

// At most `limit` bytes of valid UTF-8 on one line: control characters become spaces, bytes that are not
// UTF-8 become '?', and "..." replaces text that is cut off.
std::string one_line(std::string_view text, std::size_t limit);

}  // namespace plimsoll::webhook
