#include "tests/fake_apiserver/patch.h"

#include <nlohmann/json.hpp>

namespace plimsoll::testing::fake {
namespace {

nlohmann::json to_nlohmann(const Json& value) {
  return nlohmann::json::parse(write_json(value));
}

}  // namespace

Outcome<Json> apply_json_patch(const Json& object, const Json& patch) {
  if (!patch.isArray()) {
    return bad_request(
        "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp");
  }
  try {
    // A patch may nest deeper than the server reads.
    if (auto patched = parse_json(to_nlohmann(object).patch(to_nlohmann(patch)).dump())) {
      return *std::move(patched);
    }
  } catch (const nlohmann::json::exception&) {  // the status says all that kube-apiserver says
  }
  Status status = no_such_path();
  status.code = 422;
  status.reason = "Invalid";
  status.message = "the server rejected our request due to an error in our request";
  return status;
}

Json apply_merge_patch(const Json& object, const Json& patch) {
  nlohmann::json merged = to_nlohmann(object);
  merged.merge_patch(to_nlohmann(patch));
  return *parse_json(merged.dump());  // no deeper than the deeper of the two
}

}  // namespace plimsoll::testing::fake
