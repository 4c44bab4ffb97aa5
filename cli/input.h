// Files and standard input, read with a limit, as the Kubernetes objects in them. One thread.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/json/json.h"
#include "base/result.h"
#include "cli/console.h"

namespace plimsoll::cli {

inline constexpr Bytes kInputLimit = 64_MiB;  // hundreds of the biggest jobs, and no more than a laptop holds

// The content of a file, or of standard input for "-". Errors: kNotFound, kForbidden, kInvalid (a folder),
// kTooLarge; each names the file.
Result<std::string> read_input(const std::string& path, Console& console);

struct Document {
  Json object;
  std::string where;  // "jobs.yaml, document 2", for messages
};

// The objects of all documents of all files, be they YAML, JSON, or JSON of one object a line; lists (kind
// List, or any ...List with items) opened. Errors: as `read_input`; kInvalid for what is no YAML or JSON, or
// no object. A file without any document is an error.
Result<std::vector<Document>> read_documents(const std::vector<std::string>& paths, Console& console);

}  // namespace plimsoll::cli
