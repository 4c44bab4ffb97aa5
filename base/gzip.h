// gzip, with a limit on what a small file may grow into. Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace plimsoll {

// True when the text begins with gzip's magic number.
bool is_gzip(std::string_view text);

// Errors: kInvalid for broken or truncated data, kTooLarge when the content exceeds `limit`.
Result<std::string> gunzip(std::string_view compressed, Bytes limit);

std::string gzip(std::string_view text);

}  // namespace plimsoll
