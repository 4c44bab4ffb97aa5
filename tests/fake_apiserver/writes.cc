#include "tests/fake_apiserver/writes.h"

#include <algorithm>
#include <set>

#include "base/log.h"
#include "tests/fake_apiserver/apply.h"
#include "tests/fake_apiserver/defaults.h"
#include "tests/fake_apiserver/metadata.h"
#include "tests/fake_apiserver/patch.h"
#include "tests/fake_apiserver/schema.h"

namespace plimsoll::testing::fake {
namespace {

constexpr const char* kDefinitions = "customresourcedefinitions.apiextensions.k8s.io";
// Attempts of a write without a resourceVersion against an object that others change.
constexpr int kAttempts = 16;

Json condition(const char* type, const char* reason, const char* message) {
  Json json(::Json::objectValue);
  json["type"] = type;
  json["status"] = "True";
  json["reason"] = reason;
  json["message"] = message;
  json["lastTransitionTime"] = now_text();
  return json;
}

// A definition is served as soon as it is stored, so it is established at once.
void establish(Json& definition) {
  Json& status = definition["status"];
  status["acceptedNames"] = definition["spec"]["names"];
  if (!member(status, {"conditions"}).isArray()) {
    status["conditions"].append(condition("NamesAccepted", "NoConflicts", "no conflicts found"));
    status["conditions"].append(
        condition("Established", "InitialNamesAccepted", "the initial names have been accepted"));
  }
  status["storedVersions"] = Json(::Json::arrayValue);
  for (const Json& version : member(definition, {"spec", "versions"})) {
    const Json& stores = member(version, {"storage"});
    if (stores.isBool() && stores.asBool()) {
      status["storedVersions"].append(version["name"]);
    }
  }
}

// Whether an update needs metadata.resourceVersion.
bool needs_version(const ResourceType& type) {
  static const std::set<std::string> kinds = {"leases.coordination.k8s.io", "poddisruptionbudgets.policy",
                                              "mutatingwebhookconfigurations.admissionregistration.k8s.io",
                                              "validatingwebhookconfigurations.admissionregistration.k8s.io",
                                              kDefinitions};
  return type.custom || kinds.contains(type.group_resource());
}

std::optional<Status> check_type_meta(const Json& object, const Target& target) {
  const std::string api_version = text_member(object, {"apiVersion"});
  const std::string kind = text_member(object, {"kind"});
  if (api_version.empty() || kind.empty()) {
    return bad_request("the object provided is unrecognized (must be of type " + target.type->kind +
                       "): Object '" + (kind.empty() ? "Kind" : "apiVersion") + "' is missing in '" +
                       write_json(object).substr(0, 100) + "'");
  }
  if (api_version != target.type->api_version()) {
    return bad_request("the API version in the data (" + api_version +
                       ") does not match the expected API version (" + target.type->api_version() + ")");
  }
  if (kind != target.type->kind) {
    return invalid_object(
        {target.type->group, "", kind, text_member(object, {"metadata", "name"})},
        {{"FieldValueInvalid", "Invalid value: " + write_json(Json(kind)) + ": must be " + target.type->kind,
          "kind"}});
  }
  return std::nullopt;
}

// Fills in the namespace of the URL and refuses another one.
std::optional<Status> set_namespace(Json& object, const Target& target) {
  Json& metadata = object["metadata"];
  if (!target.type->namespaced) {
    metadata.removeMember("namespace");
    return std::nullopt;
  }
  const std::string given = text_member(metadata, {"namespace"});
  if (!given.empty() && given != target.namespace_name) {
    return bad_request(
        "the namespace of the provided object does not match the namespace sent on the request");
  }
  metadata["namespace"] = target.namespace_name;
  return std::nullopt;
}

std::optional<Status> check_name(Json& object, const Target& target) {
  const std::string given = text_member(object, {"metadata", "name"});
  if (given.empty()) {
    return bad_request("the name of the object (" + target.name +
                       " based on URL) was undeterminable: name must be provided");
  }
  if (given != target.name) {
    return bad_request("the name of the object (" + given + ") does not match the name on the URL (" +
                       target.name + ")");
  }
  return std::nullopt;
}

// An applied configuration must not contain unknown fields.
std::optional<Status> check_declared(Json configuration, const Target& target) {
  const ResourceType& type = *target.type;
  if (!type.custom) {
    return std::nullopt;
  }
  std::string text;
  for (const std::string& field : prune(configuration, type.schema)) {
    text += (text.empty() ? "." : "\n  .") + field + ": field not declared in schema";
  }
  if (text.empty()) {
    return std::nullopt;
  }
  if (text.find('\n') != std::string::npos) {
    text = "errors:\n  " + text;
  }
  Status status;
  const std::string prefix = target.namespace_name.empty() ? "/" : target.namespace_name + "/";
  status.message = "failed to create typed patch object (" + prefix + target.name + "; " +
                   type.api_version() + ", Kind=" + type.kind + "): " + text;
  return status;
}

// `live` with the part of `wanted` that this endpoint may change.
Json isolate(const Json& wanted, const Json& live, const Target& target) {
  if (!target.type->has_status) {
    return wanted;
  }
  Json result = target.subresource == "status" ? live : wanted;
  const Json& source = target.subresource == "status" ? wanted : live;
  if (source.isMember("status")) {
    result["status"] = source["status"];
  } else {
    result.removeMember("status");
  }
  return result;
}

bool same_but_bookkeeping(Json a, Json b) {
  for (Json* object : {&a, &b}) {
    (*object)["metadata"].removeMember("managedFields");
    (*object)["metadata"].removeMember("resourceVersion");
  }
  return a == b;
}

// An object that is being deleted accepts no new finalizers.
void check_finalizers(const Json& object, const Json& before, std::vector<Cause>& causes) {
  if (!member(before, {"metadata", "deletionTimestamp"}).isString()) {
    return;
  }
  const Json& old = member(before, {"metadata", "finalizers"});
  std::string added;
  for (const Json& each : member(object, {"metadata", "finalizers"})) {
    if (std::find(old.begin(), old.end(), each) == old.end()) {
      added += (added.empty() ? "" : ", ") + write_json(each);
    }
  }
  if (!added.empty()) {
    causes.push_back({"FieldValueForbidden",
                      "Forbidden: no new finalizers can be added if the object is being deleted, found new "
                      "finalizers []string{" +
                          added + "}",
                      "metadata.finalizers"});
  }
}

// Whether kube-apiserver skips the CEL rules because of these causes; it then adds a cause that says so.
bool blocks_rules(const std::vector<Cause>& causes) {
  static const std::set<std::string> blocking = {"FieldValueRequired", "FieldValueTypeInvalid",
                                                 "FieldValueNotSupported", "FieldValueTooLong",
                                                 "FieldValueTooMany"};
  return std::any_of(causes.begin(), causes.end(),
                     [](const Cause& cause) { return blocking.contains(cause.reason); });
}

void report(const UnevaluatedRules& rules) {
  for (const UnevaluatedRule& rule : rules) {
    log_info("Rule is not evaluated", {{"resource", rule.resource},
                                       {"field", rule.field},
                                       {"construct", rule.construct},
                                       {"rule", rule.rule}});
  }
}

}  // namespace

Outcome<Written> Writes::create(const Target& target, Json object, const WriteOptions& options,
                                std::vector<std::string>& warnings) {
  const ResourceType& type = *target.type;
  if (auto problem = check_type_meta(object, target)) {
    return *problem;
  }
  if (auto problem = set_namespace(object, target)) {
    return *problem;
  }
  if (!text_member(object, {"metadata", "resourceVersion"}).empty()) {
    Status status;
    status.message = "resourceVersion should not be set on objects to be created";
    return status;
  }
  if (auto problem = check_namespace(target)) {
    return *problem;
  }
  const std::string prefix = text_member(object, {"metadata", "generateName"});
  if (text_member(object, {"metadata", "name"}).empty() && !prefix.empty()) {
    object["metadata"]["name"] = generated_name(prefix);
  }
  Target named = target;
  named.name = text_member(object, {"metadata", "name"});

  set_creation_metadata(object, type);
  if (auto problem = complete(object, named, options, false, warnings)) {
    return *problem;
  }
  initialise_status(object, type);
  // Server-side apply has already set the owners.
  if (!object["metadata"].isMember("managedFields")) {
    track_update(object, Json(), type, {options.field_manager, ""});
  }
  auto admitted = admit(object, Json(), named, options, warnings);
  if (!admitted) {
    return admitted.status();
  }
  if (type.group_resource() == kDefinitions) {
    establish(*admitted);
  }
  if (store_.get(named.key()) != nullptr) {
    return already_exists(named.subject());
  }
  if (options.dry_run) {
    return Written{std::move(*admitted), true};
  }
  const Store::Written stored = store_.create(
      named.key(), convert(std::move(*admitted), type.storage() == "events" ? "v1" : type.api_version()));
  if (stored.result == Store::Write::kExists) {
    return already_exists(named.subject());
  }
  after_write(named, stored.object->json);
  return Written{stored.object->json, true};
}

Outcome<Written> Writes::update(const Target& target, Json object, const WriteOptions& options,
                                std::vector<std::string>& warnings) {
  if (auto problem = check_type_meta(object, target)) {
    return *problem;
  }
  if (auto problem = check_name(object, target)) {
    return *problem;
  }
  if (auto problem = set_namespace(object, target)) {
    return *problem;
  }
  return change(
      target, options,
      [&](const Json& live) -> Outcome<Json> {
        const std::string uid = text_member(object, {"metadata", "uid"});
        if (!uid.empty() && uid != text_member(live, {"metadata", "uid"})) {
          Subject subject = target.subject();
          subject.kind = subject.plural;
          return conflict(subject, "Precondition failed: UID in precondition: " + uid +
                                       ", UID in object meta: " + text_member(live, {"metadata", "uid"}));
        }
        if (text_member(object, {"metadata", "resourceVersion"}).empty() && needs_version(*target.type)) {
          Subject subject = target.subject();
          subject.kind = subject.plural;
          return invalid_object(subject,
                                {{"FieldValueInvalid", "Invalid value: 0: must be specified for an update",
                                  "metadata.resourceVersion"}});
        }
        Json wanted = object;
        if (auto problem = complete(wanted, target, options, false, warnings)) {
          return *problem;
        }
        wanted = isolate(wanted, live, target);
        track_update(wanted, live, *target.type, {options.field_manager, target.subresource});
        return wanted;
      },
      warnings);
}

Outcome<Written> Writes::patch(const Target& target, const std::string& media_type, const Json& patch,
                               const WriteOptions& options, std::vector<std::string>& warnings) {
  const bool applies = media_type == "application/apply-patch+yaml";
  if (applies) {
    if (options.field_manager.empty()) {
      return invalid_object(
          {"meta.k8s.io", "", "PatchOptions", ""},
          {{"FieldValueRequired", "Required value: is required for apply patch", "fieldManager"}});
    }
    if (auto problem = check_type_meta(patch, target)) {
      return *problem;
    }
    if (!member(patch, {"metadata", "managedFields"}).isNull()) {
      return bad_request("metadata.managedFields must be nil");
    }
    Json configuration = patch;
    if (auto problem = set_namespace(configuration, target)) {
      return *problem;
    }
    if (!text_member(configuration, {"metadata", "name"}).empty() || store_.get(target.key()) == nullptr) {
      if (auto problem = check_name(configuration, target)) {
        return *problem;
      }
    }
    if (auto problem = check_declared(configuration, target)) {
      return *problem;
    }
    if (store_.get(target.key()) == nullptr && target.subresource.empty()) {
      auto fresh =
          server_side_apply(Json(), configuration, *target.type, {options.field_manager, ""}, options.force);
      if (!fresh) {
        return fresh.status();
      }
      auto created = create(target, std::move(*fresh), options, warnings);
      if (created || created.status().reason != "AlreadyExists") {
        return created;
      }
    }
  }
  return change(
      target, options,
      [&](const Json& live) -> Outcome<Json> {
        Outcome<Json> patched = Json();
        if (applies) {
          patched = server_side_apply(live, patch, *target.type, {options.field_manager, target.subresource},
                                      options.force);
        } else if (media_type == "application/json-patch+json") {
          patched = apply_json_patch(live, patch);
        } else if (media_type == "application/merge-patch+json") {
          patched = apply_merge_patch(live, patch);
        } else {
          patched = apply_strategic_merge(live, patch);
        }
        if (!patched) {
          return patched;
        }
        if (auto problem = check_type_meta(*patched, target)) {
          return *problem;
        }
        if (auto problem = complete(*patched, target, options, true, warnings)) {
          return *problem;
        }
        Json wanted = isolate(*patched, live, target);
        if (applies) {
          wanted["metadata"]["managedFields"] = (*patched)["metadata"]["managedFields"];
        } else {
          track_update(wanted, live, *target.type, {options.field_manager, target.subresource});
        }
        return wanted;
      },
      warnings);
}

Outcome<Written> Writes::change(const Target& target, const WriteOptions& options, const Change& make,
                                std::vector<std::string>& warnings) {
  const ResourceType& type = *target.type;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const ObjectPtr current = store_.get(target.key());
    if (current == nullptr) {
      return not_found(target.subject());
    }
    std::vector<std::string> attempt_warnings;
    const Json live = convert(current->json, type.api_version());
    auto wanted = make(live);
    if (!wanted) {
      return wanted.status();
    }
    const std::string based_on = text_member(*wanted, {"metadata", "resourceVersion"});
    const bool has_precondition = !based_on.empty() && based_on != std::to_string(current->version);
    if (has_precondition) {
      return modified(target.subject());
    }
    if (auto problem = check_name(*wanted, target)) {
      return *problem;
    }
    if (type.group_resource() == kDefinitions && target.subresource.empty()) {
      (*wanted)["status"] = live["status"];
      establish(*wanted);
    }
    preserve_metadata(*wanted, live, type);
    auto admitted = admit(*wanted, live, target, options, attempt_warnings);
    if (!admitted) {
      warnings.insert(warnings.end(), attempt_warnings.begin(), attempt_warnings.end());
      return admitted.status();
    }
    preserve_metadata(*admitted, live, type);
    warnings.insert(warnings.end(), attempt_warnings.begin(), attempt_warnings.end());
    if (options.dry_run || same_but_bookkeeping(*admitted, live)) {
      // As in kube-apiserver: an update without changes is not written, a change of owners is.
      const bool same_owners = (*admitted)["metadata"]["managedFields"] == live["metadata"]["managedFields"];
      if (options.dry_run || same_owners) {
        return Written{std::move(*admitted), false};
      }
    }
    const bool finished = member(*admitted, {"metadata", "deletionTimestamp"}).isString() &&
                          member(*admitted, {"metadata", "finalizers"}).empty();
    const Json last = finished ? *admitted : Json();
    const Store::Written stored =
        finished ? store_.remove(target.key(), current->version)
                 : store_.replace(
                       target.key(), current->version,
                       convert(std::move(*admitted), type.storage() == "events" ? "v1" : type.api_version()));
    if (stored.result == Store::Write::kMissing) {
      return not_found(target.subject());
    }
    if (stored.result == Store::Write::kDone) {
      if (finished) {
        after_removal(target, stored.object->json, false);
        return Written{last, false};
      }
      after_write(target, stored.object->json);
      return Written{stored.object->json, false};
    }
  }
  return modified(target.subject());
}

std::optional<Status> Writes::complete(Json& object, const Target& target, const WriteOptions& options,
                                       bool is_patch, std::vector<std::string>& warnings) const {
  const ResourceType& type = *target.type;
  if (!type.custom) {
    if (target.subresource.empty()) {
      default_builtin(object, type);
    }
    return std::nullopt;
  }
  const Json before = object;
  write_integers(object);
  std::string unknown;
  for (const std::string& field : prune(object, type.schema)) {
    const std::string text = "unknown field \"" + field + "\"";
    if (options.field_validation != "Ignore" && options.field_validation != "Strict") {
      warnings.push_back(text);
    }
    unknown += (unknown.empty() ? "" : ", ") + text;
  }
  if (options.field_validation == "Strict" && !unknown.empty()) {
    if (is_patch) {
      return invalid_object({}, {{"FieldValueInvalid",
                                  "Invalid value: " + write_json(Json(write_json(before))) +
                                      ": strict decoding error: " + unknown,
                                  "patch"}});
    }
    return bad_request(type.kind + " in version \"" + type.version + "\" cannot be handled as a " +
                       type.kind + ": strict decoding error: " + unknown);
  }
  apply_defaults(object, type.schema);
  return std::nullopt;
}

std::optional<Status> Writes::validate(const Json& object, const Json& before, const Target& target) const {
  const ResourceType& type = *target.type;
  std::vector<Cause> causes = check_metadata(object, type);
  check_finalizers(object, before, causes);
  const auto add = [&](std::vector<Cause> more) { causes.insert(causes.end(), more.begin(), more.end()); };
  if (!type.custom) {
    add(check_builtin(object, before, type));
  } else {
    add(validate_schema(object, type.schema));
    if (has_cel_rules(type.unevaluated_rules) && blocks_rules(causes)) {
      causes.push_back({"FieldValueInvalid",
                        "Invalid value: null: some validation rules were not checked because the object was "
                        "invalid; correct the existing errors to complete validation",
                        "<nil>"});
    }
  }
  if (causes.empty()) {
    return std::nullopt;
  }
  return invalid_object(type.subject(text_member(object, {"metadata", "name"})), causes);
}

Outcome<Json> Writes::admit(const Json& object, const Json& before, const Target& target,
                            const WriteOptions& options, std::vector<std::string>& warnings) {
  AdmissionRequest request;
  request.type = target.type;
  request.operation = before.isNull() ? "CREATE" : "UPDATE";
  request.namespace_name = target.namespace_name;
  request.name = target.name;
  request.subresource = target.subresource;
  request.object = object;
  request.old_object = before;
  request.dry_run = options.dry_run;
  request.field_manager = options.field_manager;
  auto mutated = admission_.mutate(request, warnings);
  if (!mutated) {
    return mutated.status();
  }
  if (*mutated != object) {
    WriteOptions lenient = options;
    lenient.field_validation = "Ignore";
    if (auto problem = complete(*mutated, target, lenient, false, warnings)) {
      return *problem;
    }
  }
  if (auto problem = validate(*mutated, before, target)) {
    return *problem;
  }
  request.object = *mutated;
  if (auto problem = admission_.validate(request, warnings)) {
    return *problem;
  }
  return mutated;
}

std::optional<Status> Writes::check_namespace(const Target& target) const {
  if (!target.type->namespaced) {
    return std::nullopt;
  }
  const ObjectPtr found = store_.get({"namespaces", "", target.namespace_name});
  if (found == nullptr) {
    return not_found({"", "namespaces", "Namespace", target.namespace_name});
  }
  if (member(found->json, {"metadata", "deletionTimestamp"}).isString()) {
    return forbidden(target.subject(), "unable to create new content in namespace " + target.namespace_name +
                                           " because it is being terminated");
  }
  return std::nullopt;
}

Outcome<Written> Writes::remove(const Target& target, const Json& delete_options, const WriteOptions& options,
                                std::vector<std::string>& warnings) {
  if (target.type->storage() == "namespaces" &&
      (target.name == "default" || target.name == "kube-system" || target.name == "kube-public")) {
    return forbidden(target.subject(), "this namespace may not be deleted");
  }
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const ObjectPtr current = store_.get(target.key());
    if (current == nullptr) {
      return not_found(target.subject());
    }
    const Json& live = current->json;
    const std::string uid = text_member(delete_options, {"preconditions", "uid"});
    if (!uid.empty() && uid != text_member(live, {"metadata", "uid"})) {
      return conflict(target.subject(), "the UID in the precondition (" + uid +
                                            ") does not match the UID in record (" +
                                            text_member(live, {"metadata", "uid"}) +
                                            "). The object might have been deleted and then recreated");
    }
    const std::string version = text_member(delete_options, {"preconditions", "resourceVersion"});
    if (!version.empty() && version != std::to_string(current->version)) {
      return conflict(target.subject(), "the ResourceVersion in the precondition (" + version +
                                            ") does not match the ResourceVersion in record (" +
                                            std::to_string(current->version) +
                                            "). The object might have been modified");
    }
    AdmissionRequest request;
    request.type = target.type;
    request.operation = "DELETE";
    request.namespace_name = target.namespace_name;
    request.name = target.name;
    request.old_object = live;
    request.dry_run = options.dry_run;
    if (auto problem = admission_.validate(request, warnings)) {
      return *problem;
    }
    if (options.dry_run) {
      return Written{live, false};
    }
    const std::string propagation = text_member(delete_options, {"propagationPolicy"});
    // The dependents of a Job are kept unless the client says otherwise.
    const bool orphan = propagation == "Orphan" || (propagation.empty() && target.type->plural == "jobs");
    Store::Written stored;
    const bool waits = !member(live, {"metadata", "finalizers"}).empty();
    if (!waits) {
      stored = store_.remove(target.key(), current->version);
    } else if (member(live, {"metadata", "deletionTimestamp"}).isString()) {
      return Written{live, false};
    } else {
      Json marked = live;
      marked["metadata"]["deletionTimestamp"] = now_text();
      marked["metadata"]["deletionGracePeriodSeconds"] = 0;
      if (counts_generation(*target.type)) {
        marked["metadata"]["generation"] = live["metadata"]["generation"].asInt64() + 1;
      }
      stored = store_.replace(target.key(), current->version, std::move(marked));
    }
    if (stored.result == Store::Write::kMissing) {
      return not_found(target.subject());
    }
    if (stored.result == Store::Write::kDone) {
      if (!waits) {
        after_removal(target, stored.object->json, orphan);
      }
      return Written{stored.object->json, false};
    }
  }
  return modified(target.subject());
}

void Writes::after_write(const Target& target, const Json& object) {
  if (target.type->group_resource() == kDefinitions) {
    const std::vector<ResourceType> types = types_of_definition(object);
    for (const ResourceType& type : types) {
      report(type.unevaluated_rules);
    }
    registry_.install(types);
  } else if (target.type->group == "admissionregistration.k8s.io") {
    report(match_conditions(object));
  }
}

void Writes::after_removal(const Target& target, const Json& object, bool orphan) {
  if (target.type->group_resource() == kDefinitions) {
    const std::string group_resource =
        text_member(object, {"spec", "names", "plural"}) + "." + text_member(object, {"spec", "group"});
    remove_contents(group_resource, "");
    registry_.remove_group_resource(group_resource);
  } else if (target.type->storage() == "namespaces") {
    std::set<std::string> storages;
    for (const TypePtr& type : registry_.all()) {
      if (type->namespaced) {
        storages.insert(type->storage());
      }
    }
    for (const std::string& storage : storages) {
      remove_contents(storage, target.name);
    }
  }
  if (!orphan) {
    remove_dependents(text_member(object, {"metadata", "uid"}));
  }
}

void Writes::remove_contents(const std::string& storage, const std::string& namespace_name) {
  for (const ObjectPtr& object : store_.list(storage, namespace_name).objects) {
    const Key key{storage, text_member(object->json, {"metadata", "namespace"}),
                  text_member(object->json, {"metadata", "name"})};
    // Finalizers are ignored: their controllers' objects are deleted too.
    for (ObjectPtr now = object; now != nullptr; now = store_.get(key)) {
      if (store_.remove(key, now->version).result == Store::Write::kDone) {
        break;
      }
    }
  }
}

// As the controller-manager's garbage collector: deletes dependents without another owner.
void Writes::remove_dependents(const std::string& uid) {
  for (const TypePtr& type : registry_.all()) {
    for (const ObjectPtr& object : store_.list(type->storage(), "").objects) {
      const Json& owners = member(object->json, {"metadata", "ownerReferences"});
      const bool owned = std::any_of(owners.begin(), owners.end(),
                                     [&](const Json& owner) { return text_member(owner, {"uid"}) == uid; });
      if (!owned || owners.size() > 1) {
        continue;
      }
      Json policy(::Json::objectValue);
      policy["propagationPolicy"] = "Background";
      const Target dependent{type, text_member(object->json, {"metadata", "namespace"}),
                             text_member(object->json, {"metadata", "name"}), ""};
      std::vector<std::string> ignored_warnings;
      // A dependent that is already deleted, or waits for its finalizers, is no error.
      static_cast<void>(remove(dependent, policy, {}, ignored_warnings));
    }
  }
}

}  // namespace plimsoll::testing::fake
