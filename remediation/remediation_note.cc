#include "remediation/remediation_note.h"

#include <algorithm>

#include "base/json/edit.h"
#include "base/json/view.h"

namespace plimsoll::remediation {
namespace {

// Longer than any back-off (remediation.cc).
constexpr std::chrono::seconds kMaxDelay{3600};
constexpr std::size_t kMaxMessage = 4096;

Json operation(const char* path, Json value) {
  JsonObject json;
  json["op"] = "add";
  json["path"] = path;
  json["value"] = std::move(value);
  return json;
}

}  // namespace

Json with_note(const Json& job, const Remediation& remediation, const crds::Attempt& attempt) {
  JsonObject note;
  note["jobUID"] = text_member(job, {"metadata", "uid"});
  note["afterAttempt"] = static_cast<::Json::Int64>(attempt.number);
  note["attemptStartTime"] = attempt.start_time;
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

std::optional<Remediation> noted_remediation(const Json& job, const crds::Attempt& attempt) {
  const Result<Json> note = parse_json(text_member(job, {"metadata", "annotations", kRemediationAnnotation}));
  if (!note || text_member(*note, {"jobUID"}).empty() ||
      text_member(*note, {"jobUID"}) != text_member(job, {"metadata", "uid"}) ||
      member(*note, {"afterAttempt"}) != Json(static_cast<::Json::Int64>(attempt.number)) ||
      member(*note, {"attemptStartTime"}) != Json(attempt.start_time)) {
    return std::nullopt;
  }
  const std::optional<bool> counts = JsonView(member(*note, {"counts"})).boolean();
  const std::optional<bool> expandable = JsonView(member(*note, {"expandableSegments"})).boolean();
  const std::optional<std::int64_t> delay = JsonView(member(*note, {"delaySeconds"})).integer();
  const bool well_formed = counts && expandable && delay && *delay >= 0 && *delay <= kMaxDelay.count() &&
                           text_member(*note, {"reason"}) == crds::name_of(attempt.outcome) &&
                           text_member(*note, {"message"}).size() <= kMaxMessage;
  if (!well_formed) {
    return std::nullopt;
  }
  Remediation remediation;
  remediation.restart = true;
  remediation.counts = *counts;
  remediation.expandable_segments = *expandable;
  remediation.delay = std::chrono::seconds(*delay);
  remediation.reason = text_member(*note, {"reason"});
  remediation.message = text_member(*note, {"message"});
  remediation.patch = Json(::Json::arrayValue);
  return remediation;
}

}  // namespace plimsoll::remediation
