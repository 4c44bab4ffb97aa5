#include "tests/fake_apiserver/status.h"

namespace plimsoll::testing::fake {
namespace {

Json details_of(const Subject& subject, const std::string& kind) {
  Json details(::Json::objectValue);
  if (!subject.name.empty()) {
    details["name"] = subject.name;
  }
  if (!subject.group.empty()) {
    details["group"] = subject.group;
  }
  details["kind"] = kind;
  return details;
}

Status make(int code, std::string reason, std::string message, Json details = Json()) {
  Status status;
  status.code = code;
  status.reason = std::move(reason);
  status.message = std::move(message);
  status.details = std::move(details);
  return status;
}

}  // namespace

Json to_json(const Status& status) {
  Json json(::Json::objectValue);
  json["kind"] = "Status";
  json["apiVersion"] = "v1";
  json["metadata"] = Json(::Json::objectValue);
  json["status"] = "Failure";
  json["message"] = status.message;
  if (!status.reason.empty()) {
    json["reason"] = status.reason;
  }
  if (!status.details.isNull()) {
    json["details"] = status.details;
  }
  if (status.retry_after_seconds > 0) {
    json["details"]["retryAfterSeconds"] = status.retry_after_seconds;
  }
  json["code"] = status.code;
  return json;
}

Status bad_request(std::string message) {
  return make(400, "BadRequest", std::move(message));
}

Status not_found(const Subject& subject) {
  return make(404, "NotFound", subject.group_resource() + " \"" + subject.name + "\" not found",
              details_of(subject, subject.plural));
}

Status no_such_path() {
  return make(404, "NotFound", "the server could not find the requested resource", Json(::Json::objectValue));
}

Status already_exists(const Subject& subject) {
  return make(409, "AlreadyExists", subject.group_resource() + " \"" + subject.name + "\" already exists",
              details_of(subject, subject.plural));
}

Status modified(const Subject& subject) {
  return make(
      409, "Conflict",
      "Operation cannot be fulfilled on " + subject.group_resource() + " \"" + subject.name +
          "\": the object has been modified; please apply your changes to the latest version and try again",
      details_of(subject, subject.plural));
}

Status conflict(const Subject& subject, const std::string& message) {
  const std::string about = subject.group.empty() ? subject.kind : subject.kind + "." + subject.group;
  return make(409, "Conflict",
              "Operation cannot be fulfilled on " + about + " \"" + subject.name + "\": " + message,
              details_of(subject, subject.kind));
}

Status forbidden(const Subject& subject, const std::string& message) {
  return make(403, "Forbidden",
              subject.group_resource() + " \"" + subject.name + "\" is forbidden: " + message,
              details_of(subject, subject.plural));
}

Status invalid_object(const Subject& subject, const std::vector<Cause>& causes) {
  std::string text;
  Json details = details_of(subject, subject.kind);
  for (const Cause& cause : causes) {
    text += (text.empty() ? "" : ", ") + cause.field + ": " + cause.message;
    Json entry(::Json::objectValue);
    entry["reason"] = cause.reason;
    entry["message"] = cause.message;
    entry["field"] = cause.field;
    details["causes"].append(std::move(entry));
  }
  if (causes.size() > 1) {
    text = "[" + text + "]";
  }
  const std::string about = subject.group.empty() ? subject.kind : subject.kind + "." + subject.group;
  return make(422, "Invalid", about + " \"" + subject.name + "\" is invalid: " + text, std::move(details));
}

Status expired(const std::string& message) {
  return make(410, "Expired", message);
}

Status method_not_allowed() {
  return make(405, "MethodNotAllowed", "the server does not allow this method on the requested resource",
              Json(::Json::objectValue));
}

Status unsupported_media_type(const std::string& accepted) {
  return make(415, "UnsupportedMediaType",
              "the body of the request was in an unknown format - accepted media types include: " + accepted);
}

Status too_large(std::size_t limit) {
  return make(413, "RequestEntityTooLarge", "Request entity too large: limit is " + std::to_string(limit));
}

Status too_many_requests(int retry_after_seconds) {
  Status status = make(429, "TooManyRequests", "Too many requests, please try again later.");
  status.retry_after_seconds = retry_after_seconds;
  return status;
}

}  // namespace plimsoll::testing::fake
