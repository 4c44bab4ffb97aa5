#include "kube/event_correlator.h"

#include <array>
#include <charconv>
#include <initializer_list>

#include "base/json/view.h"
#include "base/utf8.h"

namespace plimsoll::kube {
namespace {

constexpr const char* kCombined = "(combined from similar events): ";
constexpr std::size_t kMessageLimit = 1024;  // the API server's limit of an event's note

// Names cannot contain the separator; in a message it does not matter.
std::string joined(std::initializer_list<std::string_view> parts) {
  std::string key;
  for (const std::string_view part : parts) {
    key.append(part).push_back('\0');
  }
  return key;
}

const char* name_of(EventType type) {
  return type == EventType::kWarning ? "Warning" : "Normal";
}

std::string hexadecimal(std::int64_t number) {
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.begin(), digits.end(), static_cast<std::uint64_t>(number), 16).ptr;
  return {digits.begin(), end};
}

}  // namespace

EventCorrelator::EventCorrelator(Options options)
    : options_(std::move(options)),
      similar_(options_.cache),
      seen_(options_.cache),
      allowed_(options_.cache) {}

JsonObject EventCorrelator::event_of(const Occurrence& occurrence, const std::string& message) const {
  const ObjectReference& about = occurrence.about;
  // Events of objects without namespace are in "default", as in client-go.
  const std::string namespace_name = about.namespace_name.empty() ? "default" : about.namespace_name;
  const auto nanoseconds =
      std::chrono::duration_cast<std::chrono::nanoseconds>(occurrence.time.time_since_epoch());
  JsonObject event;
  event["apiVersion"] = "v1";
  event["kind"] = "Event";
  event["metadata"]["name"] = about.name + "." + hexadecimal(nanoseconds.count());
  event["metadata"]["namespace"] = namespace_name;
  for (const auto& [name, value] : occurrence.annotations) {
    event["metadata"]["annotations"][name] = value;
  }
  const JsonPlace involved = event["involvedObject"];
  involved["apiVersion"] = about.api_version;
  involved["kind"] = about.kind;
  involved["name"] = about.name;
  if (!about.namespace_name.empty()) {
    involved["namespace"] = about.namespace_name;
  }
  if (!about.uid.empty()) {
    involved["uid"] = about.uid;
  }
  event["type"] = name_of(occurrence.type);
  event["reason"] = occurrence.reason;
  event["message"] = utf8_shortened(message, kMessageLimit);
  event["source"]["component"] = options_.component;
  event["reportingComponent"] = options_.component;
  event["reportingInstance"] = options_.instance;
  event["count"] = 1;
  event["firstTimestamp"] = format_time(occurrence.time);
  event["lastTimestamp"] = format_time(occurrence.time);
  return event;
}

std::optional<CorrelatedEvent> EventCorrelator::correlate(const Occurrence& occurrence) {
  const ObjectReference& about = occurrence.about;
  const std::string object =
      joined({about.api_version, about.kind, about.namespace_name, about.name, about.uid});
  const std::string kind = object + joined({name_of(occurrence.type), occurrence.reason});

  Similar* similar = similar_.find(kind);
  if (similar == nullptr || occurrence.time - similar->last > options_.similar_within) {
    similar = &similar_.put(kind, {});
  }
  similar->messages.insert(occurrence.message);
  similar->last = occurrence.time;
  const bool combined = similar->messages.size() >= options_.max_similar;
  if (combined) {
    similar->messages.erase(similar->messages.begin());
  }

  CorrelatedEvent correlated{
      .event = {}, .patch = {}, .key = combined ? kind : kind + joined({occurrence.message})};
  JsonObject event = event_of(occurrence, (combined ? kCombined : "") + occurrence.message);
  if (Seen* seen = seen_.find(correlated.key)) {
    ++seen->count;
    event["count"] = static_cast<::Json::Int64>(seen->count);
    event["firstTimestamp"] = seen->first;
    event["metadata"]["name"] = seen->name;
    correlated.is_known = true;
    JsonObject patch;
    for (const char* field : {"count", "lastTimestamp", "message"}) {
      patch[field] = event[field].value();
    }
    for (const auto& [name, value] : occurrence.annotations) {
      patch["metadata"]["annotations"][name] = value;
    }
    correlated.patch = std::move(patch).take();
  } else {
    seen_.put(correlated.key, {.count = 1,
                               .first = text_member(event.json(), {"firstTimestamp"}),
                               .name = text_member(event.json(), {"metadata", "name"})});
  }
  correlated.event = std::move(event).take();

  TokenBucket* allowed = allowed_.find(object);
  if (allowed == nullptr) {
    allowed =
        &allowed_.put(object, TokenBucket(options_.spam_per_second, options_.spam_burst, *options_.clock));
  }
  return allowed->try_take() ? std::optional(std::move(correlated)) : std::nullopt;
}

void EventCorrelator::written(const std::string& key, const Json& stored) {
  seen_.put(key, {.count = JsonView(member(stored, {"count"})).integer().value_or(1),
                  .first = text_member(stored, {"firstTimestamp"}),
                  .name = text_member(stored, {"metadata", "name"})});
}

}  // namespace plimsoll::kube
