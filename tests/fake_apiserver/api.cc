#include "tests/fake_apiserver/api.h"

#include <algorithm>
#include <boost/algorithm/string.hpp>
#include <exception>
#include <thread>

#include "base/yaml.h"
#include "tests/fake_apiserver/discovery.h"
#include "tests/fake_apiserver/metadata.h"
#include "tests/fake_apiserver/protobuf.h"
#include "tests/fake_apiserver/reads.h"
#include "tests/fake_apiserver/writes.h"

namespace plimsoll::testing::fake {
namespace {

constexpr const char* kApplyMediaType = "application/apply-patch+yaml";

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  boost::algorithm::split(parts, text, [separator](char c) { return c == separator; });
  return parts;
}

Reply reply_text(std::string text, std::string content_type = "text/plain") {
  Reply reply;
  reply.body = std::move(text);
  reply.content_type = std::move(content_type);
  return reply;
}

Reply reply_json(const Json& json) {
  Reply reply;
  reply.body = write_json(json);
  return reply;
}

Reply no_page() {
  Reply reply = reply_text("404 page not found\n");
  reply.code = 404;
  return reply;
}

bool is_true(const std::string& text) {
  return text == "true" || text == "1";
}

std::string verb_of(const Request& request, const Target& target) {
  const bool one = !target.name.empty();
  if (request.method == "GET") {
    return one ? "get" : is_true(request.query_value("watch")) ? "watch" : "list";
  }
  if (request.method == "DELETE") {
    return one ? "delete" : "deletecollection";
  }
  if (request.method == "POST") {
    return "create";
  }
  if (request.method == "PUT") {
    return "update";
  }
  return request.method == "PATCH" ? "patch" : "";
}

std::string media_type_of(const std::string& content_type) {
  return boost::algorithm::trim_copy(content_type.substr(0, content_type.find(';')));
}

Outcome<Json> parse_body(const Request& request, const Target& target, bool is_apply) {
  const std::string media = media_type_of(request.content_type);
  if (media == kProtobufMediaType) {
    auto object = decode_protobuf(request.body);
    if (object) {
      return *std::move(object);
    }
    return object.error().code == ErrorCode::kUnsupported
               ? unsupported_media_type("application/json, application/yaml")
               : bad_request("the object provided is unrecognized: " + object.error().message);
  }
  const bool yaml = media == "application/yaml" || is_apply;
  if (!yaml || (!request.body.empty() && request.body[0] == '{')) {
    if (auto json = parse_json(request.body)) {
      return std::move(*json);
    } else if (!yaml && request.method == "PATCH") {
      return bad_request("error decoding patch: " + json.error().message);
    } else if (!yaml) {
      return bad_request("the object provided is unrecognized (must be of type " + target.type->kind +
                         "): couldn't get version/kind; json parse error: " + json.error().message);
    }
  }
  auto documents = parse_yaml_documents(request.body);
  if (!documents || documents->size() != 1) {
    return bad_request("error decoding YAML: " +
                       (documents ? std::string("expected one document") : documents.error().message));
  }
  return std::move((*documents)[0]);
}

std::string manager_of(const Request& request) {
  const std::string given = request.query_value("fieldManager");
  if (!given.empty()) {
    return given;
  }
  const std::string agent = request.user_agent.substr(0, request.user_agent.find('/'));
  return agent.empty() ? "unknown" : agent;
}

// The status for a media type that the verb does not accept.
std::optional<Status> check_media_type(const std::string& verb, const std::string& media,
                                       const ResourceType& type) {
  std::vector<std::string> accepted;
  if (verb == "patch") {
    accepted = {"application/json-patch+json", "application/merge-patch+json", kApplyMediaType};
    if (!type.custom) {
      accepted.insert(accepted.begin() + 2, "application/strategic-merge-patch+json");
    }
  } else if (verb == "create" || verb == "update") {
    accepted = {"application/json", "application/yaml", kProtobufMediaType};
  } else {
    return std::nullopt;
  }
  if (std::find(accepted.begin(), accepted.end(), media) != accepted.end() ||
      (media.empty() && verb != "patch")) {
    return std::nullopt;
  }
  return unsupported_media_type(boost::algorithm::join(accepted, ", "));
}

// DeleteOptions, from the body and from the query.
Outcome<Json> delete_options_of(const Request& request, const Target& target) {
  Json wish(::Json::objectValue);
  // Nothing that protobuf options contain is needed here.
  if (!request.body.empty() && media_type_of(request.content_type) != kProtobufMediaType) {
    auto parsed = parse_body(request, target, false);
    if (!parsed) {
      return parsed.status();
    }
    if (parsed->isObject()) {
      wish = std::move(*parsed);
    }
  }
  if (const std::string policy = request.query_value("propagationPolicy"); !policy.empty()) {
    wish["propagationPolicy"] = policy;
  }
  return wish;
}

Json success_of(const Target& target, const Json& removed) {
  Json done(::Json::objectValue);
  done["kind"] = "Status";
  done["apiVersion"] = "v1";
  done["metadata"] = Json(::Json::objectValue);
  done["status"] = "Success";
  done["details"]["name"] = target.name;
  if (!target.type->group.empty()) {
    done["details"]["group"] = target.type->group;
  }
  done["details"]["kind"] = target.type->plural;
  done["details"]["uid"] = text_member(removed, {"metadata", "uid"});
  return done;
}

// The answer to an access review: everything is allowed.
Json answer_review(Json review) {
  if (text_member(review, {"kind"}) == "TokenReview") {
    review["status"]["authenticated"] = true;
    review["status"]["user"]["username"] = "admin";
    review["status"]["user"]["groups"].append("system:masters");
  } else {
    review["status"]["allowed"] = true;
  }
  return review;
}

}  // namespace

std::optional<Format> negotiate(const std::string& accept) {
  if (accept.empty()) {
    return Format{};
  }
  for (const std::string& choice : split(accept, ',')) {
    std::map<std::string, std::string> parameters;
    std::string media;
    for (const std::string& part : split(choice, ';')) {
      const std::size_t equals = part.find('=');
      if (equals == std::string::npos) {
        media = boost::algorithm::trim_copy(part);
      } else {
        parameters[boost::algorithm::trim_copy(part.substr(0, equals))] =
            boost::algorithm::trim_copy(part.substr(equals + 1));
      }
    }
    Format format;
    format.yaml = media == "application/yaml";
    if (!format.yaml && media != "application/json" && media != "*/*" && media != "application/*") {
      continue;
    }
    const std::string as = parameters["as"];
    if (as == "Table") {
      format.kind = Format::Kind::kTable;
      format.table.version = parameters["v"];
    } else if (as == "PartialObjectMetadata" || as == "PartialObjectMetadataList") {
      format.kind = Format::Kind::kMetadata;
    } else if (!as.empty() && as != "APIGroupDiscoveryList") {
      continue;
    }
    return format;
  }
  return std::nullopt;
}

Reply reply_status(const Status& status) {
  Reply reply;
  reply.code = status.code;
  reply.body = write_json(to_json(status));
  reply.retry_after_seconds = status.retry_after_seconds;
  return reply;
}

Api::Api(ApiOptions options)
    : options_(std::move(options)),
      store_(options_.store),
      admission_(store_),
      reads_(std::make_unique<Reads>(store_)),
      writes_(std::make_unique<Writes>(registry_, store_, admission_)) {
  const TypePtr namespaces = registry_.find("", "v1", "namespaces");
  for (const char* name : {"default", "kube-system", "kube-public", "kube-node-lease"}) {
    Json object(::Json::objectValue);
    object["apiVersion"] = "v1";
    object["kind"] = "Namespace";
    object["metadata"]["name"] = name;
    object["spec"]["finalizers"].append("kubernetes");
    std::vector<std::string> warnings;
    WriteOptions as_server;
    as_server.field_manager = "kube-apiserver";
    static_cast<void>(writes_->create({namespaces, "", "", ""}, std::move(object), as_server, warnings));
  }
}

Api::~Api() = default;

UnevaluatedRules Api::unevaluated_rules() const {
  UnevaluatedRules rules = admission_.unevaluated_rules();
  for (const TypePtr& type : registry_.all()) {
    rules.insert(rules.end(), type->unevaluated_rules.begin(), type->unevaluated_rules.end());
  }
  return rules;
}

Answer Api::handle(const Request& request) {
  // jsoncpp throws on values of unexpected types: a wrong body of the client.
  try {
    return dispatch(request);
  } catch (const std::exception& problem) {
    return reply_status(bad_request(std::string("the object provided is unrecognized: ") + problem.what()));
  }
}

Answer Api::dispatch(const Request& request) {
  std::vector<std::string> parts;
  for (std::string& part : split(request.path, '/')) {
    if (!part.empty()) {
      parts.push_back(std::move(part));
    }
  }
  if (request.body.size() > options_.body_limit) {
    return reply_status(too_large(options_.body_limit));
  }
  if (auto reply = meta(request, parts)) {
    return std::move(*reply);
  }
  return resource(request, parts);
}

// Discovery, OpenAPI, health and version.
std::optional<Reply> Api::meta(const Request& request, const std::vector<std::string>& parts) {
  const std::string first = parts.empty() ? "" : parts[0];
  if (request.method != "GET") {
    return std::nullopt;
  }
  if (first == "healthz" || first == "livez" || first == "readyz") {
    return reply_text("ok");
  }
  if (first == "version") {
    return reply_json(server_version());
  }
  if (first == "openapi" && parts.size() >= 2 && parts[1] == "v2") {
    if (request.accept.find("application/json") == std::string::npos &&
        request.accept.find("protobuf") != std::string::npos) {
      return reply_text(openapi_v2_protobuf(registry_),
                        "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
    }
    return reply_json(openapi_v2());
  }
  if (first == "openapi" && parts.size() >= 2 && parts[1] == "v3") {
    if (parts.size() == 2) {
      return reply_json(openapi_v3_index(registry_));
    }
    const bool core = parts[2] == "api" && parts.size() == 4;
    const bool grouped = parts[2] == "apis" && parts.size() == 5;
    const std::string group_name = grouped ? parts[3] : "";
    if ((!core && !grouped) || !registry_.has_group_version(group_name, parts.back())) {
      return no_page();
    }
    return reply_json(openapi_v3(registry_, group_name, parts.back()));
  }
  if (first == "api" && parts.size() == 1) {
    return reply_json(core_versions(options_.address));
  }
  if (first == "apis" && parts.size() == 1) {
    return reply_json(group_list(registry_));
  }
  if (first == "apis" && parts.size() == 2) {
    const Json found = group(registry_, parts[1]);
    return found.isNull() ? no_page() : reply_json(found);
  }
  if ((first == "api" && parts.size() == 2) || (first == "apis" && parts.size() == 3)) {
    const std::string group_name = first == "api" ? "" : parts[1];
    if (!registry_.has_group_version(group_name, parts.back())) {
      return no_page();
    }
    return reply_json(resource_list(registry_, group_name, parts.back()));
  }
  return std::nullopt;
}

Answer Api::resource(const Request& request, const std::vector<std::string>& parts) {
  const bool core = !parts.empty() && parts[0] == "api";
  const std::size_t begin = core ? 2 : 3;
  if (parts.size() <= begin || (!core && parts[0] != "apis")) {
    return no_page();
  }
  const std::string group_name = core ? "" : parts[1];
  const std::string version = parts[begin - 1];
  if (!registry_.has_group_version(group_name, version)) {
    return no_page();
  }
  std::size_t at = begin;
  Target target;
  const bool in_namespace = parts[at] == "namespaces" && parts.size() > at + 2 && parts[at + 2] != "status" &&
                            parts[at + 2] != "finalize";
  if (in_namespace) {
    target.namespace_name = parts[at + 1];
    at += 2;
  }
  target.type = registry_.find(group_name, version, parts[at]);
  target.name = parts.size() > at + 1 ? parts[at + 1] : "";
  target.subresource = parts.size() > at + 2 ? parts[at + 2] : "";
  const bool known_subresource =
      target.subresource.empty() ||
      (target.subresource == "status" && target.type && target.type->has_status) ||
      (target.subresource == "eviction" && target.type && target.type->plural == "pods");
  if (target.type == nullptr || parts.size() > at + 3 || !known_subresource ||
      (in_namespace && !target.type->namespaced)) {
    return reply_status(no_such_path());
  }
  const auto format = negotiate(request.accept);
  if (!format) {
    Status status =
        bad_request("only the following media types are accepted: application/json, application/yaml, " +
                    std::string(kProtobufMediaType));
    status.code = 406;
    status.reason = "NotAcceptable";
    return reply_status(status);
  }
  const std::string verb = verb_of(request, target);
  if (verb.empty()) {
    return reply_status(method_not_allowed());
  }
  const std::string what =
      target.type->group_resource() + (target.subresource.empty() ? "" : "/" + target.subresource);
  const std::optional<Fault> fault = faults_.take(verb, what, target.name);
  if (fault && fault->kind == Fault::Kind::kDelay) {
    std::this_thread::sleep_for(fault->delay);
  }
  if (fault &&
      (fault->kind == Fault::Kind::kStatus || (fault->kind == Fault::Kind::kExpired && verb != "watch"))) {
    Status status;
    status.code = fault->kind == Fault::Kind::kExpired ? 410 : fault->status;
    status.reason = fault->kind == Fault::Kind::kExpired ? "Expired" : fault->reason;
    status.message = "A fault that was requested";
    status.retry_after_seconds = fault->retry_after_seconds;
    return reply_status(status);
  }
  Answer answer = run(verb, request, target, *format);
  if (!fault) {
    return answer;
  }
  if (WatchPlan* plan = std::get_if<WatchPlan>(&answer)) {
    plan->fault = fault;
  } else if (fault->kind == Fault::Kind::kTruncate) {
    std::get<Reply>(answer).truncate = true;
  } else if (fault->kind == Fault::Kind::kLoseAnswer) {
    Status status;
    status.code = 504;
    status.reason = "Timeout";
    status.message = "A fault that was requested: the request was carried out, its answer was lost";
    return reply_status(status);
  }
  return answer;
}

Answer Api::run(const std::string& verb, const Request& request, const Target& target, const Format& format) {
  if (target.type->create_only) {
    if (verb != "create") {
      return reply_status(method_not_allowed());
    }
    auto review = parse_body(request, target, false);
    if (!review) {
      return reply_status(review.status());
    }
    return reply_object(*target.type, answer_review(std::move(*review)), format, 201);
  }
  if (verb == "get") {
    return reads_->get(target, format);
  }
  if (verb == "list") {
    return reads_->list(request, target, format);
  }
  if (verb == "watch") {
    return reads_->watch(request, target, format);
  }
  return write(verb, request, target, format);
}

Reply Api::write(const std::string& verb, const Request& request, const Target& target,
                 const Format& format) {
  if (target.name.empty() && (verb == "update" || verb == "patch")) {
    return reply_status(bad_request("name must be provided"));
  }
  const bool posts_to_object = verb == "create" && !target.name.empty() && target.subresource != "eviction";
  if (posts_to_object) {
    return reply_status(method_not_allowed());
  }
  if (target.type->namespaced && target.namespace_name.empty()) {
    return no_page();
  }
  const std::string media = media_type_of(request.content_type);
  if (const auto problem = check_media_type(verb, media, *target.type)) {
    return reply_status(*problem);
  }
  WriteOptions options;
  options.dry_run = request.query_value("dryRun") == "All";
  options.force = is_true(request.query_value("force"));
  options.field_validation = request.query_value("fieldValidation");
  const bool applies = media == kApplyMediaType;
  options.field_manager = applies ? request.query_value("fieldManager") : manager_of(request);
  if (verb == "delete" || verb == "deletecollection" || target.subresource == "eviction") {
    return remove(verb, request, target, format, options);
  }
  auto body = parse_body(request, target, applies);
  if (!body) {
    return reply_status(body.status());
  }
  if (!body->isObject() && !(verb == "patch" && body->isArray())) {
    return reply_status(bad_request("the object provided is unrecognized (must be of type " +
                                    target.type->kind + "): it is no object"));
  }
  std::vector<std::string> warnings;
  const Outcome<Written> done =
      verb == "create"   ? writes_->create(target, std::move(*body), options, warnings)
      : verb == "update" ? writes_->update(target, std::move(*body), options, warnings)
                         : writes_->patch(target, media, *body, options, warnings);
  Reply reply = done ? reply_object(*target.type, done->object, format, done->created ? 201 : 200)
                     : reply_status(done.status());
  reply.warnings = std::move(warnings);
  return reply;
}

Reply Api::remove(const std::string& verb, const Request& request, const Target& target, const Format& format,
                  WriteOptions options) {
  auto wish = delete_options_of(request, target);
  if (!wish) {
    return reply_status(wish.status());
  }
  const Json& dry = member(*wish, {"dryRun"});
  options.dry_run = options.dry_run || (dry.isArray() && !dry.empty());
  std::vector<std::string> warnings;
  if (verb == "deletecollection") {
    Reply listed = reads_->list(request, target, Format{});
    const auto list = parse_json(listed.body);
    for (const Json& item : member(*list, {"items"})) {
      Target one = target;
      one.name = text_member(item, {"metadata", "name"});
      // An object that was deleted in the meantime is no error.
      static_cast<void>(writes_->remove(one, *wish, options, warnings));
    }
    return listed;
  }
  const bool evicts = target.subresource == "eviction";
  const auto removed =
      writes_->remove({target.type, target.namespace_name, target.name, ""}, *wish, options, warnings);
  if (!removed) {
    return reply_status(removed.status());
  }
  const bool shows_object = target.type->plural == "pods" || target.type->plural == "services" ||
                            member(removed->object, {"metadata", "deletionTimestamp"}).isString();
  Reply reply;
  if (evicts || !shows_object) {
    reply = reply_json(success_of(target, removed->object));
    reply.code = evicts ? 201 : 200;
  } else {
    reply = reply_object(*target.type, removed->object, format);
  }
  reply.warnings = std::move(warnings);
  return reply;
}

}  // namespace plimsoll::testing::fake
