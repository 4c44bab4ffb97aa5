#include "tests/fake_apiserver/admission.h"

#include <algorithm>

#include "base/base64.h"
#include "base/log.h"
#include "tests/fake_apiserver/metadata.h"
#include "tests/fake_apiserver/patch.h"
#include "tests/fake_apiserver/selector.h"

namespace plimsoll::testing::fake {
namespace {

constexpr const char* kMutating = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
constexpr const char* kValidating = "validatingwebhookconfigurations.admissionregistration.k8s.io";

bool listed(const Json& list, const std::string& word) {
  return std::any_of(list.begin(), list.end(), [&](const Json& each) {
    return each.isString() && (each.asString() == "*" || each.asString() == word);
  });
}

// "pods", "pods/*", "*/status", "*/*", "*".
bool resource_listed(const Json& list, const AdmissionRequest& request) {
  const std::string& plural = request.type->plural;
  const std::string full = request.subresource.empty() ? plural : plural + "/" + request.subresource;
  for (const Json& each : list) {
    const std::string pattern = each.isString() ? each.asString() : "";
    if (pattern == full || pattern == "*/*" || (pattern == "*" && request.subresource.empty()) ||
        (!request.subresource.empty() &&
         (pattern == plural + "/*" || pattern == "*/" + request.subresource))) {
      return true;
    }
  }
  return false;
}

bool rule_matches(const Json& rule, const AdmissionRequest& request) {
  const std::string scope = text_member(rule, {"scope"}, "*");
  const bool in_scope = scope == "*" || (scope == "Namespaced") == request.type->namespaced;
  return in_scope && listed(member(rule, {"operations"}), request.operation) &&
         listed(member(rule, {"apiGroups"}), request.type->group) &&
         listed(member(rule, {"apiVersions"}), request.type->version) &&
         resource_listed(member(rule, {"resources"}), request);
}

bool selects(const Json& selector, const Json& object) {
  const auto parsed = LabelSelector::of(selector);
  return parsed && parsed->matches(member(object, {"metadata", "labels"}));
}

Json kind_of(const ResourceType& type, bool resource) {
  Json json(::Json::objectValue);
  json["group"] = type.group;
  json["version"] = type.version;
  json[resource ? "resource" : "kind"] = resource ? type.plural : type.kind;
  return json;
}

Json review_of(const AdmissionRequest& request, const std::string& uid) {
  Json review(::Json::objectValue);
  review["apiVersion"] = "admission.k8s.io/v1";
  review["kind"] = "AdmissionReview";
  Json& body = review["request"];
  body["uid"] = uid;
  for (const char* name : {"kind", "requestKind"}) {
    body[name] = kind_of(*request.type, false);
  }
  for (const char* name : {"resource", "requestResource"}) {
    body[name] = kind_of(*request.type, true);
  }
  if (!request.subresource.empty()) {
    body["subResource"] = request.subresource;
    body["requestSubResource"] = request.subresource;
  }
  body["name"] = request.name;
  if (request.type->namespaced) {
    body["namespace"] = request.namespace_name;
  }
  body["operation"] = request.operation;
  body["userInfo"]["username"] = "admin";
  body["userInfo"]["uid"] = "1";
  body["userInfo"]["groups"].append("system:masters");
  body["userInfo"]["groups"].append("system:authenticated");
  body["object"] = request.object;
  body["oldObject"] = request.old_object;
  body["dryRun"] = request.dry_run;
  Json options(::Json::objectValue);
  options["apiVersion"] = "meta.k8s.io/v1";
  const std::string& operation = request.operation;
  options["kind"] = operation == "CREATE"   ? "CreateOptions"
                    : operation == "UPDATE" ? "UpdateOptions"
                                            : "DeleteOptions";
  if (!request.field_manager.empty()) {
    options["fieldManager"] = request.field_manager;
  }
  body["options"] = std::move(options);
  return review;
}

// What is wrong with a review's answer, by kube-apiserver's checks; empty when nothing is.
std::string check_review(const Json& review, const std::string& uid, bool mutating) {
  if (text_member(review, {"apiVersion"}) != "admission.k8s.io/v1" ||
      text_member(review, {"kind"}) != "AdmissionReview") {
    return "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got " +
           text_member(review, {"apiVersion"}) + ", Kind=" + text_member(review, {"kind"});
  }
  const Json& response = member(review, {"response"});
  if (!response.isObject()) {
    return "webhook response is absent";
  }
  if (text_member(response, {"uid"}) != uid) {
    return "expected response.uid=\"" + uid + "\", got \"" + text_member(response, {"uid"}) + "\"";
  }
  if (!member(response, {"allowed"}).isBool()) {
    return "response.allowed is not a boolean";
  }
  const bool has_patch = !text_member(response, {"patch"}).empty();
  const bool has_type = !member(response, {"patchType"}).isNull();
  if (!mutating && (has_patch || has_type)) {
    return "validating webhook response must not contain a patch";
  }
  if (has_patch != has_type) {
    return "webhook returned response.patch and response.patchType, but not both";
  }
  if (has_type && text_member(response, {"patchType"}) != "JSONPatch") {
    return "webhook returned invalid response.patchType of \"" + text_member(response, {"patchType"}) + "\"";
  }
  return "";
}

Status denied(const std::string& webhook, const Json& response) {
  Status status;
  const Json& result = member(response, {"status"});
  const Json& code = member(result, {"code"});
  status.code = code.isInt() && code.asInt() >= 400 ? code.asInt() : 400;
  status.reason = text_member(result, {"reason"});
  status.details = member(result, {"details"});
  const std::string by = "admission webhook \"" + webhook + "\" denied the request";
  const std::string message = text_member(result, {"message"}, status.reason);
  status.message = message.empty() ? by + " without explanation" : by + ": " + message;
  return status;
}

Status call_failed(const std::string& webhook, const std::string& problem) {
  Status status;
  status.code = 500;
  status.reason = "InternalError";
  const std::string text = "failed calling webhook \"" + webhook + "\": " + problem;
  status.message = "Internal error occurred: " + text;
  Json cause(::Json::objectValue);
  cause["message"] = text;
  status.details["causes"].append(std::move(cause));
  return status;
}

}  // namespace

UnevaluatedRules match_conditions(const Json& configuration) {
  UnevaluatedRules rules;
  for (const Json& webhook : member(configuration, {"webhooks"})) {
    for (const Json& condition : member(webhook, {"matchConditions"})) {
      rules.push_back({.resource = text_member(configuration, {"kind"}) + "/" +
                                   text_member(configuration, {"metadata", "name"}),
                       .field = text_member(webhook, {"name"}),
                       .construct = "matchConditions",
                       .rule = text_member(condition, {"expression"}),
                       .message = {}});
    }
  }
  return rules;
}

UnevaluatedRules AdmissionChain::unevaluated_rules() const {
  UnevaluatedRules rules;
  for (const char* kind : {kMutating, kValidating}) {
    for (const ObjectPtr& configuration : store_.list(kind, "").objects) {
      const UnevaluatedRules more = match_conditions(configuration->json);
      rules.insert(rules.end(), more.begin(), more.end());
    }
  }
  return rules;
}

Outcome<Json> AdmissionChain::mutate(AdmissionRequest request, std::vector<std::string>& warnings) {
  for (const ObjectPtr& configuration : store_.list(kMutating, "").objects) {
    for (const Json& webhook : member(configuration->json, {"webhooks"})) {
      if (!applies(webhook, request)) {
        continue;
      }
      const std::string name = text_member(webhook, {"name"});
      auto response = call(webhook, request, true, warnings);
      if (!response) {
        return response.status();
      }
      const std::string patch_text = text_member(*response, {"patch"});
      if (patch_text.empty()) {
        continue;
      }
      const auto bytes = base64_decode(patch_text);
      const auto patch = bytes ? parse_json(*bytes) : Result<Json>(bytes.error());
      if (!patch) {
        return call_failed(name, "the patch is not base64 of JSON: " + patch.error().message);
      }
      auto patched = apply_json_patch(request.object, *patch);
      if (!patched) {
        return call_failed(name, "the patch cannot be applied: " + patched.status().message);
      }
      request.object = std::move(*patched);
    }
  }
  return request.object;
}

std::optional<Status> AdmissionChain::validate(const AdmissionRequest& request,
                                               std::vector<std::string>& warnings) {
  for (const ObjectPtr& configuration : store_.list(kValidating, "").objects) {
    for (const Json& webhook : member(configuration->json, {"webhooks"})) {
      if (!applies(webhook, request)) {
        continue;
      }
      if (auto response = call(webhook, request, false, warnings); !response) {
        return response.status();
      }
    }
  }
  return std::nullopt;
}

bool AdmissionChain::applies(const Json& webhook, const AdmissionRequest& request) const {
  if (request.type->group == "admissionregistration.k8s.io") {
    return false;  // as in kube-apiserver: a broken webhook could not be repaired otherwise
  }
  const Json& rules = member(webhook, {"rules"});
  if (std::none_of(rules.begin(), rules.end(),
                   [&](const Json& rule) { return rule_matches(rule, request); })) {
    return false;
  }
  if (request.type->namespaced || request.type->plural == "namespaces") {
    const std::string name = request.type->namespaced ? request.namespace_name : request.name;
    const ObjectPtr found = store_.get({"namespaces", "", name});
    const Json& labelled = found != nullptr ? found->json : request.object;
    if (!selects(member(webhook, {"namespaceSelector"}), labelled)) {
      return false;
    }
  }
  const Json& wanted = member(webhook, {"objectSelector"});
  return selects(wanted, request.object) ||
         (!request.old_object.isNull() && selects(wanted, request.old_object));
}

Outcome<Json> AdmissionChain::call(const Json& webhook, const AdmissionRequest& request, bool mutating,
                                   std::vector<std::string>& warnings) {
  const std::string name = text_member(webhook, {"name"});
  const bool ignores_failure = text_member(webhook, {"failurePolicy"}) == "Ignore";
  const std::string side_effects = text_member(webhook, {"sideEffects"});
  if (request.dry_run && side_effects != "None" && side_effects != "NoneOnDryRun") {
    return bad_request("admission webhook \"" + name + "\" does not support dry run");
  }
  std::string url = text_member(webhook, {"clientConfig", "url"});
  if (url.empty()) {
    log_warning("Skipped a webhook that is reached through a Service, which the fake API server has not",
                {{"webhook", name}});
    return Json();
  }
  const Json& seconds = member(webhook, {"timeoutSeconds"});
  const int timeout = seconds.isInt() ? seconds.asInt() : 10;
  url += (url.find('?') == std::string::npos ? "?timeout=" : "&timeout=") + std::to_string(timeout) + "s";
  const auto bundle = base64_decode(text_member(webhook, {"clientConfig", "caBundle"}));
  const std::string uid = new_uid();
  const auto answer = client_.post(url, bundle ? *bundle : "", write_json(review_of(request, uid)),
                                   std::chrono::seconds(timeout));
  std::string problem;
  Json review;
  if (!answer) {
    problem = "failed to call webhook: " + answer.error().message;
  } else if (auto parsed = parse_json(*answer); !parsed) {
    problem = "failed to call webhook: " + parsed.error().message;
  } else {
    review = std::move(*parsed);
    problem = check_review(review, uid, mutating);
  }
  if (!problem.empty()) {
    if (!ignores_failure) {
      return call_failed(name, problem);
    }
    log_warning("Ignored a webhook that failed", {{"webhook", name}, {"problem", problem}});
    return Json();
  }
  const Json& response = review["response"];
  for (const Json& warning : member(response, {"warnings"})) {
    if (warning.isString()) {
      warnings.push_back(warning.asString());
    }
  }
  if (!response["allowed"].asBool()) {
    return denied(name, response);
  }
  return response;
}

}  // namespace plimsoll::testing::fake
