// Small files (kubeconfigs, certificates, tokens), read whole and with a limit. Any thread.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace plimsoll {

// Errors: kNotFound when there is no such file, kForbidden when it may not be read, kTooLarge past `limit`,
// kInvalid when it is not a regular file or cannot be read.
Result<std::string> read_file(const std::string& path, Bytes limit = 16_MiB);

}  // namespace plimsoll
