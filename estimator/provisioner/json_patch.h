// JsonPatchBuilder: collects RFC 6902 operations, `add` and `replace` only, against a copy of the few parts
// of a document that a decision may touch.
//
//   JsonPatchBuilder patch(job.raw, {{"metadata", "annotations"}, {"spec", "trainers"}});
//   patch.set({"spec", "trainers", "replicas"}, 64);
//   Json operations = std::move(patch).take();
//
// The operation that needs missing parents creates them. A value that is already present makes no operation. A
// parent that is not an object stays as it is. One thread.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/json/json.h"

namespace plimsoll::estimator::inline provisioner {

// A step of a JSON pointer: an object's key, or an array's index.
using PatchStep = std::variant<std::string, Json::ArrayIndex>;
using PatchPath = std::vector<PatchStep>;

class JsonPatchBuilder {
 public:
  // Copies only the subtrees at `parts` (paths of object keys).
  JsonPatchBuilder(const Json& document, const std::vector<std::vector<std::string>>& parts);

  // False when a value on the path is neither an object nor an array with that index.
  bool set(const PatchPath& path, const Json& value);
  // Appends to the array at `path`, which must exist.
  bool append(const PatchPath& path, const Json& value);

  const Json& document() const { return document_; }
  Json take() && { return std::move(operations_); }

 private:
  void emit(const char* operation, const std::string& pointer, const Json& value);

  Json document_;
  Json operations_{::Json::arrayValue};
};

// "/spec/template/metadata/annotations/nvidia.com~1gpu"
std::string json_pointer(const PatchPath& path);

}  // namespace plimsoll::estimator::provisioner
