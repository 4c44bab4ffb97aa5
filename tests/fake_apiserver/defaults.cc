#include "tests/fake_apiserver/defaults.h"

#include <array>
#include <atomic>
#include <cctype>
#include <functional>
#include <map>
#include <utility>

#include "base/base64.h"
#include "tests/fake_apiserver/metadata.h"

namespace plimsoll::testing::fake {
namespace {

void set_if_unset(Json& object, const char* name, const Json& value) {
  if (!object.isMember(name) || object[name].isNull()) {
    object[name] = value;
  }
}

void default_container(Json& container) {
  set_if_unset(container, "resources", Json(::Json::objectValue));
  set_if_unset(container, "terminationMessagePath", "/dev/termination-log");
  set_if_unset(container, "terminationMessagePolicy", "File");
  const std::string image = text_member(container, {"image"});
  const std::size_t colon = image.find(':', image.rfind('/') == std::string::npos ? 0 : image.rfind('/'));
  const bool latest = image.find('@') == std::string::npos &&
                      (colon == std::string::npos || image.substr(colon) == ":latest");
  set_if_unset(container, "imagePullPolicy", latest ? "Always" : "IfNotPresent");
  if (container["ports"].isArray()) {
    for (Json& port : container["ports"]) {
      set_if_unset(port, "protocol", "TCP");
    }
  } else {
    container.removeMember("ports");
  }
  if (container.isMember("env") && container["env"].isArray()) {
    for (Json& variable : container["env"]) {
      if (member(variable, {"valueFrom", "fieldRef"}).isObject()) {
        set_if_unset(variable["valueFrom"]["fieldRef"], "apiVersion", "v1");
      }
    }
  }
}

void default_pod_spec(Json& spec) {
  set_if_unset(spec, "restartPolicy", "Always");
  set_if_unset(spec, "terminationGracePeriodSeconds", 30);
  set_if_unset(spec, "dnsPolicy", "ClusterFirst");
  set_if_unset(spec, "securityContext", Json(::Json::objectValue));
  set_if_unset(spec, "schedulerName", "default-scheduler");
  for (const char* list : {"initContainers", "containers"}) {
    if (spec.isMember(list) && spec[list].isArray()) {
      for (Json& container : spec[list]) {
        if (container.isObject()) {
          default_container(container);
        }
      }
    }
  }
  if (spec.isMember("volumes") && spec["volumes"].isArray()) {
    for (Json& volume : spec["volumes"]) {
      for (const char* source : {"configMap", "secret", "projected", "downwardAPI"}) {
        if (member(volume, {source}).isObject()) {
          set_if_unset(volume[source], "defaultMode", 420);
        }
      }
    }
  }
}

void default_job(Json& job) {
  Json& spec = job["spec"];
  if (!spec.isMember("completions") && !spec.isMember("parallelism")) {
    spec["completions"] = 1;
  }
  set_if_unset(spec, "parallelism", 1);
  set_if_unset(spec, "backoffLimit", 6);
  set_if_unset(spec, "completionMode", "NonIndexed");
  set_if_unset(spec, "suspend", false);
  set_if_unset(spec, "manualSelector", false);
  set_if_unset(spec, "podReplacementPolicy",
               spec.isMember("podFailurePolicy") ? "Failed" : "TerminatingOrFailed");
  for (Json& rule : spec["podFailurePolicy"]["rules"]) {
    if (rule.isMember("onPodConditions")) {
      for (Json& condition : rule["onPodConditions"]) {
        set_if_unset(condition, "status", "True");
      }
    }
  }
  if (spec["podFailurePolicy"]["rules"].isNull()) {
    spec.removeMember("podFailurePolicy");
  }
  default_pod_spec(spec["template"]["spec"]);
  const std::string uid = text_member(job, {"metadata", "uid"});
  if (spec["manualSelector"].asBool() || uid.empty() || spec.isMember("selector")) {
    return;
  }
  const std::string name = text_member(job, {"metadata", "name"});
  for (Json* labels : {&job["metadata"]["labels"], &spec["template"]["metadata"]["labels"]}) {
    if (labels->isNull() && labels == &job["metadata"]["labels"]) {
      // kube-apiserver copies the pod template's labels to a job that has none.
      *labels = member(spec, {"template", "metadata", "labels"});
    }
    for (const char* prefix : {"", "batch.kubernetes.io/"}) {
      (*labels)[std::string(prefix) + "controller-uid"] = uid;
      (*labels)[std::string(prefix) + "job-name"] = name;
    }
  }
  spec["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"] = uid;
}

void default_service(Json& service) {
  Json& spec = service["spec"];
  set_if_unset(spec, "type", "ClusterIP");
  set_if_unset(spec, "sessionAffinity", "None");
  set_if_unset(spec, "internalTrafficPolicy", "Cluster");
  set_if_unset(spec, "ipFamilyPolicy", "SingleStack");
  if (!spec.isMember("ipFamilies")) {
    spec["ipFamilies"].append("IPv4");
  }
  if (!spec.isMember("clusterIP") && text_member(spec, {"type"}) != "ExternalName") {
    static std::atomic<unsigned> next{10};
    const unsigned number = next++;
    spec["clusterIP"] =
        "10.96." + std::to_string(number / 250 % 250) + "." + std::to_string(number % 250 + 1);
  }
  if (!spec.isMember("clusterIPs") && spec.isMember("clusterIP")) {
    spec["clusterIPs"].append(spec["clusterIP"]);
  }
  if (spec.isMember("ports") && spec["ports"].isArray()) {
    for (Json& port : spec["ports"]) {
      set_if_unset(port, "protocol", "TCP");
      set_if_unset(port, "targetPort", port["port"]);
    }
  }
}

void default_webhooks(Json& configuration, bool mutating) {
  if (!configuration.isMember("webhooks") || !configuration["webhooks"].isArray()) {
    return;
  }
  for (Json& webhook : configuration["webhooks"]) {
    set_if_unset(webhook, "failurePolicy", "Fail");
    set_if_unset(webhook, "matchPolicy", "Equivalent");
    set_if_unset(webhook, "namespaceSelector", Json(::Json::objectValue));
    set_if_unset(webhook, "objectSelector", Json(::Json::objectValue));
    set_if_unset(webhook, "timeoutSeconds", 10);
    if (mutating) {
      set_if_unset(webhook, "reinvocationPolicy", "Never");
    }
    if (webhook.isMember("rules") && webhook["rules"].isArray()) {
      for (Json& rule : webhook["rules"]) {
        set_if_unset(rule, "scope", "*");
      }
    }
    if (member(webhook, {"clientConfig", "service"}).isObject()) {
      set_if_unset(webhook["clientConfig"]["service"], "port", 443);
    }
  }
}

void default_secret(Json& secret) {
  set_if_unset(secret, "type", "Opaque");
  const Json& plain = member(secret, {"stringData"});
  if (plain.isObject()) {
    for (const std::string& key : plain.getMemberNames()) {
      secret["data"][key] = base64_encode(plain[key].asString());
    }
    secret.removeMember("stringData");
  }
}

void default_event(Json& event) {
  set_if_unset(event, "eventTime", Json());
  if (text_member(event, {"apiVersion"}) == "v1") {
    set_if_unset(event, "reportingComponent", "");
    set_if_unset(event, "reportingInstance", "");
  }
}

void default_node(Json& node) {
  if (member(node, {"status", "capacity"}).isObject()) {
    set_if_unset(node["status"], "allocatable", node["status"]["capacity"]);
  }
}

void default_definition(Json& definition) {
  Json& names = definition["spec"]["names"];
  const std::string kind = text_member(names, {"kind"});
  std::string lower = kind;
  for (char& c : lower) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  set_if_unset(names, "singular", lower);
  set_if_unset(names, "listKind", kind + "List");
  if (!member(definition, {"spec", "conversion"}).isObject()) {
    definition["spec"]["conversion"]["strategy"] = "None";
  }
}

void require(const Json& object, std::initializer_list<std::string_view> at, const char* field,
             std::vector<Cause>& causes) {
  const Json& value = member(object, at);
  if (value.isNull() || (value.isString() && value.asString().empty()) ||
      (value.isArray() && value.empty())) {
    causes.push_back({"FieldValueRequired", "Required value", field});
  }
}

void keep(const Json& object, const Json& before, std::initializer_list<std::string_view> at,
          const char* field, std::vector<Cause>& causes) {
  const Json& value = member(object, at);
  if (value != member(before, at)) {
    causes.push_back(
        {"FieldValueInvalid", "Invalid value: " + write_json(value) + ": field is immutable", field});
  }
}

// The fields of a suspended job's template that kube-apiserver 1.36 allows to change before the job starts.
Json without_scheduling(Json pod_template) {
  for (const char* field : {"nodeSelector", "affinity", "tolerations", "schedulingGates"}) {
    pod_template["spec"].removeMember(field);
  }
  for (const char* field : {"labels", "annotations"}) {
    pod_template["metadata"].removeMember(field);
  }
  return pod_template;
}

void check_job(const Json& job, const Json& before, std::vector<Cause>& causes) {
  const std::string policy = text_member(job, {"spec", "template", "spec", "restartPolicy"});
  if (policy != "Never" && policy != "OnFailure") {
    causes.push_back({"FieldValueRequired", "Required value: valid values: \"OnFailure\", \"Never\"",
                      "spec.template.spec.restartPolicy"});
  }
  require(job, {"spec", "template", "spec", "containers"}, "spec.template.spec.containers", causes);
  const bool indexed = text_member(job, {"spec", "completionMode"}) == "Indexed";
  if (indexed) {
    require(job, {"spec", "completions"}, "spec.completions", causes);
  }
  if (before.isNull()) {
    return;
  }
  keep(job, before, {"spec", "selector"}, "spec.selector", causes);
  keep(job, before, {"spec", "completionMode"}, "spec.completionMode", causes);
  keep(job, before, {"spec", "podFailurePolicy"}, "spec.podFailurePolicy", causes);
  // An Indexed job may be resized: completions and parallelism together.
  if (!indexed || member(job, {"spec", "completions"}) != member(job, {"spec", "parallelism"})) {
    keep(job, before, {"spec", "completions"}, "spec.completions", causes);
  }
  const Json& suspended = member(before, {"spec", "suspend"});
  const bool may_move =
      suspended.isBool() && suspended.asBool() && !member(before, {"status", "startTime"}).isString();
  const Json& now_template = job["spec"]["template"];
  const Json& old_template = before["spec"]["template"];
  const bool same = may_move ? without_scheduling(now_template) == without_scheduling(old_template)
                             : now_template == old_template;
  if (!same) {
    causes.push_back({"FieldValueInvalid",
                      "Invalid value: " + write_json(now_template) + ": field is immutable",
                      "spec.template"});
  }
}

// Only images, tolerations, the deadline and scheduling gates of a pod may change; a binding sets its node.
Json without_mutable(Json spec) {
  for (const char* list : {"containers", "initContainers"}) {
    if (spec.isMember(list)) {
      for (Json& container : spec[list]) {
        container.removeMember("image");
      }
    }
  }
  for (const char* field : {"tolerations", "activeDeadlineSeconds", "schedulingGates"}) {
    spec.removeMember(field);
  }
  return spec;
}

void check_pod(const Json& pod, const Json& before, std::vector<Cause>& causes) {
  require(pod, {"spec", "containers"}, "spec.containers", causes);
  if (!before.isNull() && without_mutable(pod["spec"]) != without_mutable(before["spec"])) {
    causes.push_back(
        {"FieldValueForbidden",
         "Forbidden: pod updates may not change fields other than "
         "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations)",
         "spec"});
  }
}

// Bytes after base64 decoding.
std::size_t decoded_size(std::string_view text) {
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  return text.size() / 4 * 3 - std::min(padding, text.size() / 4 * 3);
}

// A ConfigMap or Secret holds at most 1 MiB, decoded.
void check_data_size(const Json& object, std::vector<Cause>& causes) {
  constexpr std::size_t kLimit = std::size_t{1} << 20;
  std::size_t total = 0;
  const bool secret = text_member(object, {"kind"}) == "Secret";
  for (const char* field : {"data", "binaryData"}) {
    const bool encoded = secret || std::string_view(field) == "binaryData";
    for (const Json& value : member(object, {field})) {
      const std::string text = value.isString() ? value.asString() : "";
      total += encoded ? decoded_size(text) : text.size();
    }
  }
  if (total > kLimit) {
    causes.push_back(
        {"FieldValueTooLong", "Too long: may not be more than " + std::to_string(kLimit) + " bytes", "[]"});
  }
}

void check_webhooks(const Json& configuration, std::vector<Cause>& causes) {
  int index = 0;
  for (const Json& webhook : member(configuration, {"webhooks"})) {
    const std::string at = "webhooks[" + std::to_string(index++) + "].";
    if (!member(webhook, {"sideEffects"}).isString()) {
      causes.push_back({"FieldValueRequired", "Required value: must specify one of None, NoneOnDryRun",
                        at + "sideEffects"});
    }
    if (member(webhook, {"admissionReviewVersions"}).empty()) {
      causes.push_back({"FieldValueRequired", "Required value: must specify one of v1, v1beta1",
                        at + "admissionReviewVersions"});
    }
    if (!member(webhook, {"clientConfig", "url"}).isString() &&
        !member(webhook, {"clientConfig", "service"}).isObject()) {
      causes.push_back({"FieldValueRequired", "Required value: exactly one of url or service is required",
                        at + "clientConfig"});
    }
  }
}

void check_definition(const Json& definition, std::vector<Cause>& causes) {
  const std::string wanted =
      text_member(definition, {"spec", "names", "plural"}) + "." + text_member(definition, {"spec", "group"});
  const std::string name = text_member(definition, {"metadata", "name"});
  if (name != wanted) {
    causes.push_back({"FieldValueInvalid",
                      "Invalid value: \"" + name + "\": must be spec.names.plural+\".\"+spec.group",
                      "metadata.name"});
  }
  require(definition, {"spec", "names", "kind"}, "spec.names.kind", causes);
  require(definition, {"spec", "versions"}, "spec.versions", causes);
  int storage_versions = 0;
  int index = 0;
  for (const Json& version : member(definition, {"spec", "versions"})) {
    const Json& stores = member(version, {"storage"});
    storage_versions += stores.isBool() && stores.asBool() ? 1 : 0;
    if (!member(version, {"schema", "openAPIV3Schema"}).isObject()) {
      causes.push_back({"FieldValueRequired", "Required value: schemas are required",
                        "spec.versions[" + std::to_string(index) + "].schema.openAPIV3Schema"});
    }
    ++index;
  }
  if (storage_versions != 1) {
    causes.push_back({"FieldValueInvalid",
                      "Invalid value: must have exactly one version marked as storage version",
                      "spec.versions"});
  }
}

constexpr std::array<std::pair<const char*, const char*>, 6> kEventNames = {{
    {"involvedObject", "regarding"},
    {"message", "note"},
    {"count", "deprecatedCount"},
    {"firstTimestamp", "deprecatedFirstTimestamp"},
    {"lastTimestamp", "deprecatedLastTimestamp"},
    {"source", "deprecatedSource"},
}};

}  // namespace

void initialise_status(Json& object, const ResourceType& type) {
  const std::string what = type.group_resource();
  if (!type.has_status || what == "nodes") {
    return;  // kubelets and tests create nodes with their status
  }
  object.removeMember("status");
  if (what == "namespaces") {
    object["status"]["phase"] = "Active";
  } else if (what == "pods") {
    object["status"]["phase"] = "Pending";
    object["status"]["qosClass"] = "BestEffort";
  } else if (what == "services") {
    object["status"]["loadBalancer"] = Json(::Json::objectValue);
  } else if (!type.custom) {
    object["status"] = Json(::Json::objectValue);
  }
}

void default_builtin(Json& object, const ResourceType& type) {
  const std::string what = type.group_resource();
  if (what == "pods") {
    default_pod_spec(object["spec"]);
  } else if (what == "jobs.batch") {
    default_job(object);
  } else if (what == "deployments.apps") {
    set_if_unset(object["spec"], "replicas", 1);
    default_pod_spec(object["spec"]["template"]["spec"]);
  } else if (what == "services") {
    default_service(object);
  } else if (what == "secrets") {
    default_secret(object);
  } else if (what == "nodes") {
    default_node(object);
  } else if (type.kind == "Event") {
    default_event(object);
  } else if (what == "namespaces") {
    object["metadata"]["labels"]["kubernetes.io/metadata.name"] = object["metadata"]["name"];
  } else if (type.group == "admissionregistration.k8s.io") {
    default_webhooks(object, type.kind.starts_with("Mutating"));
  } else if (what == "customresourcedefinitions.apiextensions.k8s.io") {
    default_definition(object);
  }
}

std::vector<Cause> check_builtin(const Json& object, const Json& before, const ResourceType& type) {
  std::vector<Cause> causes;
  const std::string what = type.group_resource();
  if (what == "jobs.batch") {
    check_job(object, before, causes);
  } else if (what == "pods") {
    check_pod(object, before, causes);
  } else if (what == "services" && !before.isNull()) {
    keep(object, before, {"spec", "clusterIP"}, "spec.clusterIP", causes);
  } else if (what == "configmaps" || what == "secrets") {
    check_data_size(object, causes);
    const Json& fixed = member(before, {"immutable"});
    if (fixed.isBool() && fixed.asBool()) {
      keep(object, before, {"data"}, "data", causes);
    }
  } else if (type.group == "admissionregistration.k8s.io") {
    check_webhooks(object, causes);
  } else if (what == "customresourcedefinitions.apiextensions.k8s.io") {
    check_definition(object, causes);
  } else if (type.group == "rbac.authorization.k8s.io" && !before.isNull() &&
             type.kind.ends_with("Binding")) {
    if (object["roleRef"] != before["roleRef"]) {
      causes.push_back({"FieldValueInvalid",
                        "Invalid value: " + write_json(object["roleRef"]) + ": cannot change roleRef",
                        "roleRef"});
    }
  }
  return causes;
}

Json convert(Json object, const std::string& api_version) {
  const std::string from = text_member(object, {"apiVersion"});
  const bool is_event = text_member(object, {"kind"}) == "Event";
  if (from == api_version || !is_event) {
    object["apiVersion"] = api_version;
    return object;
  }
  const bool to_core = api_version == "v1";
  const auto rename = [&](const char* core, const char* newer) {
    const char* source = to_core ? newer : core;
    if (object.isMember(source)) {
      object[to_core ? core : newer] = object[source];
      object.removeMember(source);
    }
  };
  for (const auto& [core, newer] : kEventNames) {
    rename(core, newer);
  }
  rename("reportingComponent", "reportingController");
  object["apiVersion"] = api_version;
  return object;
}

}  // namespace plimsoll::testing::fake
