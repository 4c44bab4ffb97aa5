// Base64 (RFC 4648, with padding). Secrets, ConfigMap binaryData and JSON patches are written in it.
// Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace plimsoll {

std::string base64_encode(std::string_view bytes);

// Errors: kInvalid for a character outside the alphabet or wrong padding. Line breaks are skipped.
Result<std::string> base64_decode(std::string_view text);

}  // namespace plimsoll
