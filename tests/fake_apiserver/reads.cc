#include "tests/fake_apiserver/reads.h"

#include <algorithm>
#include <charconv>
#include <random>

#include "base/yaml.h"
#include "tests/fake_apiserver/defaults.h"
#include "tests/fake_apiserver/metadata.h"

namespace plimsoll::testing::fake {
namespace {

constexpr std::size_t kMaxContinuations = 32;
constexpr std::chrono::seconds kWatchDefault{1800};

Json partial_of(const Json& object) {
  Json partial(::Json::objectValue);
  partial["kind"] = "PartialObjectMetadata";
  partial["apiVersion"] = "meta.k8s.io/v1";
  partial["metadata"] = member(object, {"metadata"});
  return partial;
}

Json in_version_of(const ResourceType& type, const Json& object) {
  return text_member(object, {"apiVersion"}) == type.api_version() ? object
                                                                   : convert(object, type.api_version());
}

Reply reply_json(const Json& json, const Format& format) {
  Reply reply;
  reply.body = format.yaml ? write_yaml(json) : write_json(json);
  if (format.yaml) {
    reply.content_type = "application/yaml";
  }
  return reply;
}

Outcome<std::uint64_t> parse_version(const std::string& text) {
  std::uint64_t version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (!text.empty() && (error != std::errc() || end != text.data() + text.size())) {
    return bad_request("invalid resource version: resourceVersion: Invalid value: \"" + text +
                       "\": strconv.ParseUint: parsing \"" + text + "\": invalid syntax");
  }
  return version;
}

Status version_too_large(std::uint64_t wanted, std::uint64_t current) {
  Status status;
  status.code = 504;
  status.reason = "Timeout";
  status.message = "Timeout: Too large resource version: " + std::to_string(wanted) +
                   ", current: " + std::to_string(current);
  Json cause(::Json::objectValue);
  cause["reason"] = "ResourceVersionTooLarge";
  cause["message"] = "Too large resource version";
  status.details["causes"].append(std::move(cause));
  status.retry_after_seconds = 1;
  return status;
}

Status too_old(std::uint64_t version, std::uint64_t oldest) {
  return expired("too old resource version: " + std::to_string(version) + " (" + std::to_string(oldest) +
                 ")");
}

struct Selectors {
  LabelSelector labels;
  FieldSelector fields;

  bool match(const ResourceType& type, const Json& object) const {
    return labels.matches(member(object, {"metadata", "labels"})) &&
           (fields.empty() || fields.matches(in_version_of(type, object)));
  }
};

Outcome<Selectors> selectors_of(const Request& request, const Target& target) {
  auto labels = LabelSelector::parse(request.query_value("labelSelector"));
  if (!labels) {
    return labels.status();
  }
  std::string field_text = request.query_value("fieldSelector");
  if (!target.name.empty()) {
    field_text += (field_text.empty() ? "metadata.name=" : ",metadata.name=") + target.name;
  }
  auto fields = FieldSelector::parse(field_text, *target.type);
  if (!fields) {
    return fields.status();
  }
  return Selectors{std::move(*labels), std::move(*fields)};
}

}  // namespace

std::string render_object(const ResourceType& type, const Object& object, const Format& format) {
  if (format.kind == Format::Kind::kTable) {
    const Json converted = in_version_of(type, object.json);
    Json table = make_table(type, {&converted}, format.table);
    table["metadata"]["resourceVersion"] = std::to_string(object.version);
    return write_json(table);
  }
  if (format.kind == Format::Kind::kMetadata) {
    return write_json(partial_of(object.json));
  }
  return text_member(object.json, {"apiVersion"}) == type.api_version()
             ? object.text
             : write_json(convert(object.json, type.api_version()));
}

Reply reply_object(const ResourceType& type, const Json& object, const Format& format, int code) {
  const Json converted = in_version_of(type, object);
  Json shown = converted;
  if (format.kind == Format::Kind::kTable) {
    shown = make_table(type, {&converted}, format.table);
    shown["metadata"]["resourceVersion"] = text_member(object, {"metadata", "resourceVersion"});
  } else if (format.kind == Format::Kind::kMetadata) {
    shown = partial_of(converted);
  }
  Reply reply = reply_json(shown, format);
  reply.code = code;
  return reply;
}

Reply Reads::get(const Target& target, const Format& format) const {
  const ObjectPtr object = store_.get(target.key());
  if (object == nullptr) {
    return reply_status(not_found(target.subject()));
  }
  if (!format.yaml) {
    Reply reply;
    reply.body = render_object(*target.type, *object, format);
    return reply;
  }
  return reply_object(*target.type, object->json, format);
}

Outcome<Snapshot> Reads::snapshot_for(const Request& request, const Target& target) const {
  const auto wanted = parse_version(request.query_value("resourceVersion"));
  if (!wanted) {
    return wanted.status();
  }
  const std::uint64_t current = store_.version();
  if (*wanted > current) {
    return version_too_large(*wanted, current);
  }
  const std::string match = request.query_value("resourceVersionMatch");
  const bool exact =
      match == "Exact" || (match.empty() && *wanted > 0 && !request.query_value("limit").empty() &&
                           request.query_value("limit") != "0");
  if (exact && *wanted > 0) {
    auto old = store_.list_at(target.type->storage(), target.namespace_name, *wanted);
    if (!old) {
      return too_old(*wanted, store_.oldest_version());
    }
    return std::move(*old);
  }
  return store_.list(target.type->storage(), target.namespace_name);
}

std::string Reads::keep_continuation(std::uint64_t version, std::vector<ObjectPtr> objects) {
  const std::string token = "page-" + new_uid();
  const std::lock_guard lock(mutex_);
  continuations_.push_back({token, version, std::move(objects)});
  if (continuations_.size() > kMaxContinuations) {
    continuations_.pop_front();
  }
  return token;
}

Reply Reads::list(const Request& request, const Target& target, const Format& format) {
  const auto selectors = selectors_of(request, target);
  if (!selectors) {
    return reply_status(selectors.status());
  }
  Snapshot snapshot;
  const std::string token = request.query_value("continue");
  if (!token.empty()) {
    const std::lock_guard lock(mutex_);
    const auto rest = std::find_if(continuations_.begin(), continuations_.end(),
                                   [&](const Continuation& each) { return each.token == token; });
    if (rest == continuations_.end() || rest->version < store_.oldest_version()) {
      if (!token.starts_with("page-")) {
        return reply_status(bad_request("invalid continue token: continue key is not valid: " + token));
      }
      return reply_status(expired(
          "The provided continue parameter is too old to display a consistent list result. You can start a "
          "new list without the continue parameter, or use the continue token in this response to retrieve "
          "the remainder of the results."));
    }
    snapshot = {rest->version, rest->objects};
  } else {
    auto made = snapshot_for(request, target);
    if (!made) {
      return reply_status(made.status());
    }
    snapshot = std::move(*made);
    std::erase_if(snapshot.objects,
                  [&](const ObjectPtr& object) { return !selectors->match(*target.type, object->json); });
  }

  Json metadata(::Json::objectValue);
  metadata["resourceVersion"] = std::to_string(snapshot.version);
  std::size_t limit = 0;
  const std::string limit_text = request.query_value("limit");
  std::from_chars(limit_text.data(), limit_text.data() + limit_text.size(), limit);
  if (limit > 0 && snapshot.objects.size() > limit) {
    std::vector<ObjectPtr> rest(snapshot.objects.begin() + static_cast<std::ptrdiff_t>(limit),
                                snapshot.objects.end());
    snapshot.objects.resize(limit);
    metadata["remainingItemCount"] = static_cast<::Json::UInt64>(rest.size());
    metadata["continue"] = keep_continuation(snapshot.version, std::move(rest));
  }

  if (format.kind == Format::Kind::kTable) {
    std::vector<Json> converted;
    for (const ObjectPtr& object : snapshot.objects) {
      converted.push_back(in_version_of(*target.type, object->json));
    }
    std::vector<const Json*> shown;
    for (const Json& object : converted) {
      shown.push_back(&object);
    }
    Json table = make_table(*target.type, shown, format.table);
    table["metadata"] = std::move(metadata);
    return reply_json(table, format);
  }
  const bool partial = format.kind == Format::Kind::kMetadata;
  Json list(::Json::objectValue);
  list["kind"] = partial ? "PartialObjectMetadataList" : target.type->kind + "List";
  list["apiVersion"] = partial ? "meta.k8s.io/v1" : target.type->api_version();
  list["metadata"] = std::move(metadata);
  list["items"] = Json(::Json::arrayValue);
  for (const ObjectPtr& object : snapshot.objects) {
    Json item = partial ? partial_of(object->json) : in_version_of(*target.type, object->json);
    if (!partial && !target.type->custom) {
      // kube-apiserver leaves these out of the items of built-in kinds.
      item.removeMember("kind");
      item.removeMember("apiVersion");
    }
    list["items"].append(std::move(item));
  }
  return reply_json(list, format);
}

Answer Reads::watch(const Request& request, const Target& target, const Format& format) const {
  auto selectors = selectors_of(request, target);
  if (!selectors) {
    return reply_status(selectors.status());
  }
  const std::string version_text = request.query_value("resourceVersion");
  const auto version = parse_version(version_text);
  if (!version) {
    return reply_status(version.status());
  }
  const bool wants_initial = request.query_value("sendInitialEvents") == "true";
  if (wants_initial && request.query_value("resourceVersionMatch") != "NotOlderThan") {
    return reply_status(
        invalid_object({"meta.k8s.io", "", "ListOptions", ""},
                       {{"FieldValueForbidden",
                         "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                         "resourceVersionMatch"}}));
  }
  WatchPlan plan;
  plan.type = target.type;
  plan.namespace_name = target.namespace_name;
  plan.format = format;
  const std::string bookmarks = request.query_value("allowWatchBookmarks");
  plan.bookmarks = bookmarks == "true" || bookmarks == "1";
  std::chrono::seconds timeout = kWatchDefault;
  const std::string timeout_text = request.query_value("timeoutSeconds");
  std::int64_t seconds = 0;
  std::from_chars(timeout_text.data(), timeout_text.data() + timeout_text.size(), seconds);
  if (seconds > 0) {
    timeout = std::min(timeout, std::chrono::seconds(seconds));
  }
  plan.deadline = std::chrono::steady_clock::now() + timeout;
  plan.after = *version;
  if (wants_initial || (*version == 0 && request.query_value("sendInitialEvents") != "false")) {
    Snapshot snapshot = store_.list(target.type->storage(), target.namespace_name);
    plan.after = snapshot.version;
    plan.initial_end = wants_initial && plan.bookmarks;
    for (ObjectPtr& object : snapshot.objects) {
      if (selectors->match(*target.type, object->json)) {
        plan.initial.push_back(std::move(object));
      }
    }
  }
  plan.labels = std::move(selectors->labels);
  plan.fields = std::move(selectors->fields);
  return plan;
}

}  // namespace plimsoll::testing::fake
