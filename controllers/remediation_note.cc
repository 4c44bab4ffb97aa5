#include "controllers/remediation_note.h"

#include <algorithm>

#include "base/json_edit.h"
#include "base/json_view.h"

namespace plimsoll::controllers {
namespace {

Json operation(const char* path, Json value) {
  JsonObject json;
  json["op"] = "add";
  json["path"] = path;
  json["value"] = std::move(value);
  return json;
}

}  // namespace

Json with_note(const Json& job, const Remediation& remediation, std::int64_t attempt) {
  JsonObject note;
  note["afterAttempt"] = static_cast<::Json::Int64>(attempt);
  note["counts"] = remediation.counts;
  note["expandableSegments"] = remediation.expandable_segments;
  note["delaySeconds"] = static_cast<::Json::Int64>(remediation.delay.count());
  note["reason"] = remediation.reason;
  note["message"] = remediation.message;

  JsonArray patch;
  bool made = false;
  for (const Json& one : remediation.patch) {
    patch.append(one);
    made = made || text_member(one, {"path"}) == "/metadata/annotations";
  }
  if (!made && !member(job, {"metadata", "annotations"}).isObject()) {
    patch.append(operation("/metadata/annotations", Json(::Json::objectValue)));
  }
  patch.append(operation("/metadata/annotations/plimsoll.dev~1remediation", write_json(note)));
  return patch;
}

std::optional<Remediation> noted_remediation(const Json& job, std::int64_t attempt) {
  const Result<Json> note = parse_json(text_member(job, {"metadata", "annotations", kRemediationAnnotation}));
  if (!note || member(*note, {"afterAttempt"}) != Json(static_cast<::Json::Int64>(attempt))) {
    return std::nullopt;
  }
  Remediation remediation;
  remediation.restart = true;
  remediation.counts = member(*note, {"counts"}) != Json(false);
  remediation.expandable_segments = member(*note, {"expandableSegments"}) == Json(true);
  const std::int64_t delay = JsonView(member(*note, {"delaySeconds"})).integer().value_or(0);
  remediation.delay = std::chrono::seconds(std::max<std::int64_t>(0, delay));
  remediation.reason = text_member(*note, {"reason"}, "Restarting");
  remediation.message = text_member(*note, {"message"});
  remediation.patch = Json(::Json::arrayValue);
  return remediation;
}

}  // namespace plimsoll::controllers
