#include "remediation/remediation_note.h"

#include <algorithm>

#include "base/json/edit.h"
#include "base/json/view.h"

namespace plimsoll::remediation {
namespace {

// Longer than any back-off (remediation.cc).
constexpr std::chrono::seconds kMaxDelay{3600};
constexpr std::size_t kMaxMessage = 4096;

Json add_operation(const char* path, const Json& value) {
  return json_object({{"op", "add"}, {"path", path}, {"value", value}});
}

}  // namespace

Json with_note(const Json& job, const Remediation& remediation, const crds::Attempt& attempt) {
  Json note = json_object({{"jobUID", text_member(job, {"metadata", "uid"})},
                           {"afterAttempt", attempt.number},
                           {"attemptStartTime", attempt.start_time},
                           {"counts", remediation.counts},
                           {"expandableSegments", remediation.expandable_segments},
                           {"delaySeconds", remediation.delay.count()},
                           {"reason", remediation.reason},
                           {"message", remediation.message}});
  if (remediation.shared_memory) {
    set_member(note, "sharedMemoryBytes", remediation.shared_memory->count);
  }
  JsonArray patch;
  bool has_annotations = member(job, {"metadata", "annotations"}).isObject();
  for (const Json& one : remediation.patch) {
    patch.append(one);
    has_annotations = has_annotations || text_member(one, {"path"}) == "/metadata/annotations";
  }
  if (!has_annotations) {
    patch.append(add_operation("/metadata/annotations", Json(::Json::objectValue)));
  }
  patch.append(add_operation("/metadata/annotations/plimsoll.dev~1remediation", write_json(note)));
  return patch;
}

std::optional<Remediation> noted_remediation(const Json& job, const crds::Attempt& attempt) {
  const Result<Json> note = parse_json(text_member(job, {"metadata", "annotations", kRemediationAnnotation}));
  if (!note || text_member(*note, {"jobUID"}).empty() ||
      text_member(*note, {"jobUID"}) != text_member(job, {"metadata", "uid"}) ||
      member(*note, {"afterAttempt"}) != Json(attempt.number) ||
      member(*note, {"attemptStartTime"}) != Json(attempt.start_time)) {
    return std::nullopt;
  }
  const std::optional<bool> counts = JsonView(member(*note, {"counts"})).boolean();
  const std::optional<bool> expandable = JsonView(member(*note, {"expandableSegments"})).boolean();
  const std::optional<std::int64_t> delay = JsonView(member(*note, {"delaySeconds"})).integer();
  const Json& shared = member(*note, {"sharedMemoryBytes"});  // absent: nothing was given
  const std::int64_t shared_memory = JsonView(shared).integer().value_or(shared.isNull() ? 1 : 0);
  const bool well_formed = counts && expandable && delay && shared_memory > 0 && *delay >= 0 &&
                           *delay <= kMaxDelay.count() &&
                           text_member(*note, {"reason"}) == crds::name_of(attempt.outcome) &&
                           text_member(*note, {"message"}).size() <= kMaxMessage;
  if (!well_formed) {
    return std::nullopt;
  }
  Remediation remediation;
  remediation.restart = true;
  remediation.counts = *counts;
  remediation.expandable_segments = *expandable;
  if (!shared.isNull()) {
    remediation.shared_memory = Bytes{shared_memory};
  }
  remediation.delay = std::chrono::seconds(*delay);
  remediation.reason = text_member(*note, {"reason"});
  remediation.message = text_member(*note, {"message"});
  remediation.patch = Json(::Json::arrayValue);
  return remediation;
}

}  // namespace plimsoll::remediation
