#include <algorithm>

#include "tests/fake_apiserver/resource_type.h"
#include "tests/fake_apiserver/table.h"

namespace plimsoll::testing::fake {
namespace {

Column age() {
  return {.name = "Age", .cell = [](const Json& object) {
            return Json(age_since(member(object, {"metadata", "creationTimestamp"})));
          }};
}

Column path(std::string name, std::string json_path, int priority = 0) {
  return {.name = std::move(name), .json_path = std::move(json_path), .priority = priority};
}

Column computed(std::string name, std::function<Json(const Json&)> cell, std::string type = "string",
                int priority = 0) {
  return {.name = std::move(name), .type = std::move(type), .cell = std::move(cell), .priority = priority};
}

// How many members the named maps have together.
Column count_of(std::string name, std::vector<std::string> fields) {
  return computed(
      std::move(name),
      [fields = std::move(fields)](const Json& object) {
        Json::ArrayIndex total = 0;
        for (const std::string& field : fields) {
          const Json& value = member(object, {field});
          total += value.isObject() || value.isArray() ? value.size() : 0;
        }
        return Json(static_cast<int>(total));
      },
      "integer");
}

std::string number_or(const Json& value, const std::string& otherwise) {
  return value.isNumeric() ? value.asString() : otherwise;
}

bool condition_holds(const Json& object, const std::string& type) {
  for (const Json& condition : member(object, {"status", "conditions"})) {
    if (text_member(condition, {"type"}) == type) {
      return text_member(condition, {"status"}) == "True";
    }
  }
  return false;
}

std::vector<Column> pod_columns() {
  const auto ready = [](const Json& pod) {
    int ready_count = 0;
    for (const Json& status : member(pod, {"status", "containerStatuses"})) {
      const Json& is_ready = member(status, {"ready"});
      ready_count += is_ready.isBool() && is_ready.asBool() ? 1 : 0;
    }
    return Json(std::to_string(ready_count) + "/" +
                std::to_string(member(pod, {"spec", "containers"}).size()));
  };
  const auto status = [](const Json& pod) {
    if (member(pod, {"metadata", "deletionTimestamp"}).isString()) {
      return Json("Terminating");
    }
    std::string text = text_member(pod, {"status", "phase"}, "Unknown");
    text = text_member(pod, {"status", "reason"}, text);
    for (const Json& container : member(pod, {"status", "containerStatuses"})) {
      text = text_member(container, {"state", "waiting", "reason"}, text);
      text = text_member(container, {"state", "terminated", "reason"}, text);
    }
    return Json(text);
  };
  const auto restarts = [](const Json& pod) {
    int total = 0;
    for (const Json& container : member(pod, {"status", "containerStatuses"})) {
      const Json& count = member(container, {"restartCount"});
      total += count.isInt() ? count.asInt() : 0;
    }
    return Json(std::to_string(total));
  };
  return {computed("Ready", ready),       computed("Status", status),
          computed("Restarts", restarts), age(),
          path("IP", ".status.podIP", 1), path("Node", ".spec.nodeName", 1)};
}

std::vector<Column> node_columns() {
  const auto status = [](const Json& node) {
    std::string text = condition_holds(node, "Ready") ? "Ready" : "NotReady";
    const Json& cordoned = member(node, {"spec", "unschedulable"});
    return Json(text + (cordoned.isBool() && cordoned.asBool() ? ",SchedulingDisabled" : ""));
  };
  const auto roles = [](const Json& node) {
    static const std::string kPrefix = "node-role.kubernetes.io/";
    std::string text;
    const Json& labels = member(node, {"metadata", "labels"});
    for (const std::string& label : labels.isObject() ? labels.getMemberNames() : Json::Members()) {
      if (label.starts_with(kPrefix)) {
        text += (text.empty() ? "" : ",") + label.substr(kPrefix.size());
      }
    }
    return Json(text.empty() ? "<none>" : text);
  };
  return {computed("Status", status), computed("Roles", roles), age(),
          path("Version", ".status.nodeInfo.kubeletVersion")};
}

std::vector<Column> job_columns() {
  const auto status = [](const Json& job) {
    for (const char* type : {"Complete", "Failed", "Suspended"}) {
      if (condition_holds(job, type)) {
        return Json(type);
      }
    }
    return Json("Running");
  };
  const auto completions = [](const Json& job) {
    return Json(number_or(member(job, {"status", "succeeded"}), "0") + "/" +
                number_or(member(job, {"spec", "completions"}), "1"));
  };
  const auto duration = [](const Json& job) {
    const Json& start = member(job, {"status", "startTime"});
    return start.isString() ? Json(age_since(start)) : Json("");
  };
  return {computed("Status", status), computed("Completions", completions), computed("Duration", duration),
          age()};
}

std::vector<Column> service_columns() {
  const auto ports = [](const Json& service) {
    std::string text;
    for (const Json& port : member(service, {"spec", "ports"})) {
      text += (text.empty() ? "" : ",") + member(port, {"port"}).asString() + "/" +
              text_member(port, {"protocol"}, "TCP");
    }
    return Json(text.empty() ? "<none>" : text);
  };
  return {path("Type", ".spec.type"), path("Cluster-IP", ".spec.clusterIP"),
          computed("External-IP", [](const Json&) { return Json("<none>"); }), computed("Port(s)", ports),
          age()};
}

std::vector<Column> event_columns() {
  const auto last_seen = [](const Json& event) {
    for (const char* field : {"lastTimestamp", "deprecatedLastTimestamp", "eventTime", "firstTimestamp"}) {
      if (member(event, {field}).isString()) {
        return Json(age_since(member(event, {field})));
      }
    }
    return Json("<unknown>");
  };
  const auto about = [](const Json& event) {
    const Json& target =
        event.isMember("regarding") ? member(event, {"regarding"}) : member(event, {"involvedObject"});
    std::string kind = text_member(target, {"kind"});
    std::transform(kind.begin(), kind.end(), kind.begin(), [](unsigned char c) { return std::tolower(c); });
    return Json(kind + "/" + text_member(target, {"name"}));
  };
  const auto text = [](const Json& event) {
    return Json(text_member(event, {"message"}, text_member(event, {"note"})));
  };
  return {computed("Last Seen", last_seen), path("Type", ".type"), path("Reason", ".reason"),
          computed("Object", about), computed("Message", text)};
}

std::vector<Column> deployment_columns() {
  const auto ready = [](const Json& deployment) {
    return Json(number_or(member(deployment, {"status", "readyReplicas"}), "0") + "/" +
                number_or(member(deployment, {"spec", "replicas"}), "1"));
  };
  return {computed("Ready", ready), path("Up-to-date", ".status.updatedReplicas"),
          path("Available", ".status.availableReplicas"), age()};
}

ResourceType make(std::string group, std::string version, std::string plural, std::string kind,
                  std::vector<Column> columns) {
  ResourceType type;
  type.group = std::move(group);
  type.version = std::move(version);
  type.plural = std::move(plural);
  type.kind = std::move(kind);
  type.singular = type.kind;
  std::transform(type.singular.begin(), type.singular.end(), type.singular.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  type.columns = std::move(columns);
  return type;
}

}  // namespace

std::vector<ResourceType> builtin_types() {
  std::vector<ResourceType> types;
  const auto add = [&](ResourceType type) -> ResourceType& {
    types.push_back(std::move(type));
    return types.back();
  };
  const auto add_global = [&](ResourceType type) -> ResourceType& {
    type.namespaced = false;
    return add(std::move(type));
  };

  ResourceType& namespaces =
      add_global(make("", "v1", "namespaces", "Namespace", {path("Status", ".status.phase"), age()}));
  namespaces.short_names = {"ns"};
  namespaces.has_status = true;
  ResourceType& nodes = add_global(make("", "v1", "nodes", "Node", node_columns()));
  nodes.short_names = {"no"};
  nodes.has_status = true;
  ResourceType& pods = add(make("", "v1", "pods", "Pod", pod_columns()));
  pods.short_names = {"po"};
  pods.categories = {"all"};
  pods.has_status = true;
  add(make("", "v1", "configmaps", "ConfigMap", {count_of("Data", {"data", "binaryData"}), age()}))
      .short_names = {"cm"};
  add(make("", "v1", "secrets", "Secret", {path("Type", ".type"), count_of("Data", {"data"}), age()}));
  ResourceType& services = add(make("", "v1", "services", "Service", service_columns()));
  services.short_names = {"svc"};
  services.categories = {"all"};
  services.has_status = true;
  add(make("", "v1", "events", "Event", event_columns())).short_names = {"ev"};
  add(make("events.k8s.io", "v1", "events", "Event", event_columns())).short_names = {"ev"};
  add(make("", "v1", "serviceaccounts", "ServiceAccount", {count_of("Secrets", {"secrets"}), age()}))
      .short_names = {"sa"};

  ResourceType& deployments = add(make("apps", "v1", "deployments", "Deployment", deployment_columns()));
  deployments.short_names = {"deploy"};
  deployments.categories = {"all"};
  deployments.has_status = true;
  ResourceType& jobs = add(make("batch", "v1", "jobs", "Job", job_columns()));
  jobs.categories = {"all"};
  jobs.has_status = true;
  add(make("coordination.k8s.io", "v1", "leases", "Lease", {path("Holder", ".spec.holderIdentity"), age()}));
  ResourceType& budgets =
      add(make("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget",
               {path("Min Available", ".spec.minAvailable"), path("Max Unavailable", ".spec.maxUnavailable"),
                path("Allowed Disruptions", ".status.disruptionsAllowed"), age()}));
  budgets.short_names = {"pdb"};
  budgets.has_status = true;
  add(make("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", {age()})).short_names = {"netpol"};

  // Stored and served, no more.
  add(make("", "v1", "resourcequotas", "ResourceQuota", {age()})).short_names = {"quota"};
  add(make("", "v1", "limitranges", "LimitRange", {age()})).short_names = {"limits"};
  add(make("apps", "v1", "replicasets", "ReplicaSet", {age()})).short_names = {"rs"};
  add(make("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", {age()}));
  ResourceType& priorities =
      add_global(make("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass",
                      {path("Value", ".value"), path("Global-Default", ".globalDefault"), age()}));
  priorities.short_names = {"pc"};
  priorities.singular = "priorityclass";

  const std::string rbac = "rbac.authorization.k8s.io";
  const Column role = computed("Role", [](const Json& binding) {
    return Json(text_member(binding, {"roleRef", "kind"}) + "/" + text_member(binding, {"roleRef", "name"}));
  });
  const Column created = computed(
      "Created At",
      [](const Json& object) {
        return member(object, {"metadata", "creationTimestamp"});
      },
      "date");
  add(make(rbac, "v1", "roles", "Role", {created}));
  add(make(rbac, "v1", "rolebindings", "RoleBinding", {role, age()}));
  add_global(make(rbac, "v1", "clusterroles", "ClusterRole", {created}));
  add_global(make(rbac, "v1", "clusterrolebindings", "ClusterRoleBinding", {role, age()}));

  const std::string admission = "admissionregistration.k8s.io";
  for (const std::string kind : {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}) {
    ResourceType type = make(admission, "v1", "", kind, {count_of("Webhooks", {"webhooks"}), age()});
    type.plural = type.singular + "s";
    add_global(std::move(type));
  }
  ResourceType& definitions = add_global(
      make("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", {created}));
  definitions.short_names = {"crd", "crds"};
  definitions.categories = {"api-extensions"};
  definitions.has_status = true;

  const std::string authorization = "authorization.k8s.io";
  add_global(make(authorization, "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", {}))
      .create_only = true;
  add_global(make(authorization, "v1", "subjectaccessreviews", "SubjectAccessReview", {})).create_only = true;
  add_global(make("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", {})).create_only = true;
  return types;
}

}  // namespace plimsoll::testing::fake
