// YAML as manifests and kubeconfigs have it; written and read again.
#include "base/yaml.h"
#include "tests/fuzz/target.h"

namespace plimsoll::testing {

FUZZ_TARGET(yaml) {
  const Result<std::vector<Json>> documents = parse_yaml_documents(input);
  if (!documents) {
    return;
  }
  for (const Json& document : *documents) {
    const std::string written = write_yaml(document);
    const Result<std::vector<Json>> again = parse_yaml_documents(written);
    require(again.ok(), "what was written can be read");
    const Json same = again->empty() ? Json() : again->front();
    require(again->size() <= 1 && write_json(same) == write_json(document),
            "what was written is read as it was");
  }
}

}  // namespace plimsoll::testing
