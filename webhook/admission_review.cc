#include "webhook/admission_review.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "base/base64.h"
#include "base/json/edit.h"
#include "base/utf8.h"
#include "webhook/text.h"

namespace plimsoll::webhook {
namespace {

constexpr const char* kReviewApiVersion = "admission.k8s.io/v1";
constexpr const char* kReviewKind = "AdmissionReview";
// The API server's uids have 36 characters.
constexpr std::size_t kUidLimit = 256;

constexpr std::array kOperations = {
    std::pair{"CREATE", Operation::kCreate},
    std::pair{"UPDATE", Operation::kUpdate},
    std::pair{"DELETE", Operation::kDelete},
    std::pair{"CONNECT", Operation::kConnect},
};

// The uid of a review that is not JSON (because it is cut off, for example): the first string after "request"
// and "uid", if it looks like a uid.
std::string salvaged_uid(std::string_view body) {
  const auto skip = [&](std::size_t at, std::string_view characters) {
    return std::min(body.find_first_not_of(characters, at), body.size());
  };
  const std::size_t request = body.find("\"request\"");
  const std::size_t key = request == body.npos ? body.npos : body.find("\"uid\"", request);
  if (key == body.npos) {
    return "";
  }
  std::size_t at = skip(key + 5, " \t\r\n");
  if (at >= body.size() || body[at] != ':') {
    return "";
  }
  at = skip(at + 1, " \t\r\n");
  if (at >= body.size() || body[at] != '"') {
    return "";
  }
  const std::size_t end = skip(at + 1, "0123456789abcdefABCDEF-");
  const std::string_view uid = body.substr(at + 1, end - at - 1);
  return end < body.size() && body[end] == '"' && uid.size() <= kUidLimit ? std::string(uid) : "";
}

// Reads members of the request and keeps the first error.
class RequestReader {
 public:
  explicit RequestReader(const JsonView& request) : request_(request) {}

  std::string text(std::initializer_list<std::string_view> path) {
    const JsonView value = member(request_, path);
    const std::optional<std::string_view> text = value.text();
    if (!text && !value.is_null()) {
      fail(path, "a string");
    }
    return std::string(text.value_or(""));
  }

  bool flag(std::string_view name) {
    const JsonView value = member(request_, {name});
    const std::optional<bool> truth = value.boolean();
    if (!truth && !value.is_null()) {
      fail({name}, "a boolean");
    }
    return truth.value_or(false);
  }

  void require_object(std::string_view name) {
    if (!member(request_, {name}).is_object()) {
      fail({name}, "an object");
    }
  }

  const std::string& problem() const { return problem_; }

 private:
  void fail(std::initializer_list<std::string_view> path, const char* wanted) {
    if (!problem_.empty()) {
      return;
    }
    problem_ = "request";
    for (const std::string_view key : path) {
      problem_ += "." + std::string(key);
    }
    problem_ += std::string(" must be ") + wanted;
  }

  const JsonView request_;
  std::string problem_;
};

// Reads everything except the objects. The message of what is wrong, or nothing.
std::string read_request(const JsonView& json, AdmissionRequest& request) {
  RequestReader reader(json);
  reader.require_object("kind");
  request.group = reader.text({"kind", "group"});
  request.version = reader.text({"kind", "version"});
  request.kind = reader.text({"kind", "kind"});
  request.sub_resource = reader.text({"subResource"});
  request.namespace_name = reader.text({"namespace"});
  request.name = reader.text({"name"});
  request.dry_run = reader.flag("dryRun");
  const std::string operation = reader.text({"operation"});
  if (!reader.problem().empty()) {
    return reader.problem();
  }
  const auto* known = std::ranges::find(kOperations, operation, &std::pair<const char*, Operation>::first);
  if (known == kOperations.end()) {
    return "request.operation must be CREATE, UPDATE, DELETE or CONNECT, is \"" + one_line(operation, 40) +
           "\"";
  }
  request.operation = known->second;
  return "";
}

// Checks the review around the request. The message of what is wrong, or nothing.
std::string check_envelope(const JsonView& review) {
  if (!review.is_object()) {
    return "the body must be a JSON object of kind AdmissionReview";
  }
  const std::string version = text_member(review, {"apiVersion"});
  if (version == "admission.k8s.io/v1beta1") {
    return "admission.k8s.io/v1beta1 is not served; set admissionReviewVersions: [v1] in the webhook configuration";
  }
  if (version != kReviewApiVersion || text_member(review, {"kind"}) != kReviewKind) {
    return std::string("the body must be of apiVersion ") + kReviewApiVersion + " and kind " + kReviewKind;
  }
  return member(review, {"request"}).is_object() ? "" : "the AdmissionReview has no request";
}

Json status_of(int code, const std::string& reason, const std::string& message) {
  JsonObject status;
  status["status"] = "Failure";
  status["code"] = code;
  status["reason"] = reason;
  status["message"] = one_line(message, kMessageLimit);
  return status;
}

Json causes_of(const std::vector<crds::FieldError>& errors) {
  JsonArray causes;
  for (std::size_t i = 0; i < std::min(errors.size(), kCauseLimit); ++i) {
    JsonObject cause;
    cause["reason"] = "FieldValueInvalid";
    cause["field"] = one_line(errors[i].field, kWarningLimit);
    cause["message"] = one_line(errors[i].message, kWarningLimit);
    causes.append(std::move(cause));
  }
  return causes;
}

Json warnings_of(const std::vector<std::string>& texts) {
  JsonArray warnings;
  std::size_t left = kAllWarningsLimit;
  for (const std::string& text : texts) {
    const std::string line = one_line(text, std::min(kWarningLimit, left));
    if (line.empty()) {
      continue;
    }
    left -= line.size();
    warnings.append(line);
  }
  return warnings;
}

std::string encode(Json response) {
  JsonObject review;
  review["apiVersion"] = kReviewApiVersion;
  review["kind"] = kReviewKind;
  review["response"] = std::move(response);
  return write_json(review.json());
}

}  // namespace

Decoded decode_review(std::string_view body) {
  Decoded decoded;
  const auto refuse = [&](std::string message, int status = 400, const char* reason = "BadRequest") {
    decoded.error = ReviewError{
        .http_status = status, .uid = decoded.request.uid, .reason = reason, .message = std::move(message)};
    return std::move(decoded);
  };
  if (body.size() > kReviewLimit) {
    decoded.request.uid = salvaged_uid(body.substr(0, 4096));
    return refuse("the AdmissionReview is larger than " + std::to_string(kReviewLimit) + " bytes", 413,
                  "RequestEntityTooLarge");
  }
  Result<JsonText> text = JsonText::parse_as_tree(body);
  if (!text) {
    decoded.request.uid = salvaged_uid(body);
    return refuse(is_utf8(body) ? "the body is " + text.error().message : "the body is not UTF-8");
  }
  decoded.request.text = std::make_shared<const JsonText>(*std::move(text));
  const JsonView review = decoded.request.text->root();
  if (std::string uid = text_member(review, {"request", "uid"}); uid.size() <= kUidLimit) {
    decoded.request.uid = std::move(uid);
  }
  if (const std::string problem = check_envelope(review); !problem.empty()) {
    return refuse(problem);
  }
  if (decoded.request.uid.empty()) {
    return refuse("request.uid must be a string of 1 to " + std::to_string(kUidLimit) + " bytes");
  }
  const JsonView request = member(review, {"request"});
  if (const std::string problem = read_request(request, decoded.request); !problem.empty()) {
    return refuse(problem);
  }
  decoded.request.object = member(request, {"object"});
  decoded.request.old_object = member(request, {"oldObject"});
  return decoded;
}

bool changed(const AdmissionRequest& request, std::initializer_list<std::string_view> path) {
  return !(member(request.object, path) == member(request.old_object, path));
}

std::string encode_answer(const std::string& uid, const AdmissionAnswer& answer) {
  JsonObject response;
  response["uid"] = uid;
  response["allowed"] = answer.allowed;
  if (!answer.allowed) {
    response["status"] = status_of(answer.code, answer.reason, answer.message);
    if (!answer.causes.empty()) {
      response["status"]["details"]["causes"] = causes_of(answer.causes);
    }
  } else if (answer.patch.isArray() && !answer.patch.empty()) {
    response["patchType"] = "JSONPatch";
    response["patch"] = base64_encode(write_json(answer.patch));
  }
  if (Json warnings = warnings_of(answer.warnings); !warnings.empty()) {
    response["warnings"] = std::move(warnings);
  }
  return encode(std::move(response));
}

std::string encode_error(const ReviewError& error) {
  JsonObject response;
  response["uid"] = error.uid;
  response["allowed"] = false;
  response["status"] = status_of(error.http_status, error.reason, error.message);
  return encode(std::move(response));
}

const char* name_of(Operation operation) {
  return std::ranges::find(kOperations, operation, &std::pair<const char*, Operation>::second)->first;
}

}  // namespace plimsoll::webhook
