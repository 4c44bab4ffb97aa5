// Reads the Kubernetes objects in files and standard input, with a limit on their size. One thread.
#pragma once

#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/json/json.h"
#include "base/result.h"
#include "cli/console.h"

namespace plimsoll::cli {

inline constexpr Bytes kInputLimit = 64_MiB;  // hundreds of the largest jobs; fits the memory of a laptop

// The content of a file, or of standard input for "-". Errors: kNotFound, kForbidden, kInvalid (a folder),
// kTooLarge; each names the file.
Result<std::string> read_input(const std::string& path, Console& console);

struct Document {
  Json object;
  std::string where;  // "jobs.yaml, document 2", for messages
};

// The objects of all documents of all files: YAML, JSON, or one JSON object on each line. Lists (kind
// List, or any ...List with items) are replaced by their items. Errors: as `read_input`; kInvalid for what is not YAML or JSON, or
// not an object. A file without any document is an error.
Result<std::vector<Document>> read_documents(const std::vector<std::string>& paths, Console& console);

}  // namespace plimsoll::cli
