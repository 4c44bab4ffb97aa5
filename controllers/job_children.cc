#include "controllers/job_children.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <string_view>

#include "base/base64.h"
#include "base/gzip.h"

namespace plimsoll::controllers {
namespace {

// A pod's host name is its Job's name, a dash and its index of up to five digits, in a DNS label of 63.
constexpr std::size_t kLongestChildName = 63 - 6;
// The API server's limit on a ConfigMap's content (core/v1 MaxSecretSize), less what metadata may take.
constexpr std::size_t kLargestConfigMap = (1U << 20U) - (16U << 10U);
constexpr int kMasterPort = 29500;  // torchrun's default

constexpr const char* kPlanVolume = "plimsoll-plan";
constexpr const char* kCompletionIndex = "metadata.annotations['batch.kubernetes.io/job-completion-index']";

// FNV-1a: the same on every machine and in every version, which std::hash does not promise.
std::string hash_of(std::string_view text) {
  std::uint32_t hash = 2166136261U;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  }
  char hex[9];
  std::snprintf(hex, sizeof hex, "%08x", hash);
  return hex;
}

// The job's name as children and labels can carry it: a DNS label (RFC 1035) of at most `limit` bytes.
std::string short_name(const std::string& job, std::size_t limit) {
  std::string name = job;
  std::replace(name.begin(), name.end(), '.', '-');
  if (!name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) != 0) {
    name.insert(0, "j");
  }
  if (name == job && name.size() <= limit) {
    return name;
  }
  const std::string hash = "-" + hash_of(job);
  return name.substr(0, limit - hash.size()) + hash;
}

Json metadata_of(const crds::TrainingJob& job, const crds::Attempt& attempt, const std::string& name) {
  Json metadata(::Json::objectValue);
  metadata["name"] = name;
  metadata["namespace"] = job.namespace_name;
  metadata["ownerReferences"].append(owner_reference(job.raw));
  Json& labels = metadata["labels"];
  labels["app.kubernetes.io/managed-by"] = "plimsoll";
  labels[kJobNameLabel] = short_name(job.name, kLongestChildName);
  labels[kAttemptLabel] = std::to_string(attempt.number);
  return metadata;
}

void add_missing(Json& object, const char* name, const Json& value) {
  if (!object.isMember(name)) {
    object[name] = value;
  }
}

Json variable(const char* name, const std::string& value) {
  Json json(::Json::objectValue);
  json["name"] = name;
  json["value"] = value;
  return json;
}

Json* find_variable(Json& environment, const std::string& name) {
  for (Json& entry : environment) {
    if (text_member(entry, {"name"}) == name) {
      return &entry;
    }
  }
  return nullptr;
}

// What the user set stays.
void add_variable(Json& environment, Json entry) {
  if (find_variable(environment, text_member(entry, {"name"})) == nullptr) {
    environment.append(std::move(entry));
  }
}

// Adds the setting to the allocator's own, in the variable that the user has chosen for them.
void expand_segments(Json& environment) {
  constexpr const char* kSetting = "expandable_segments:True";
  for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    if (Json* entry = find_variable(environment, name)) {
      const std::string value = text_member(*entry, {"value"});
      if (!entry->isMember("valueFrom") && value.find("expandable_segments") == std::string::npos) {
        (*entry)["value"] = value.empty() ? kSetting : value + "," + kSetting;
      }
      return;
    }
  }
  environment.append(variable("PYTORCH_CUDA_ALLOC_CONF", kSetting));
}

std::int64_t nodes_of(const crds::Attempt& attempt) {
  const std::int64_t per_node = std::max<std::int64_t>(1, attempt.per_node);
  return std::max<std::int64_t>(1, (attempt.trainers + per_node - 1) / per_node);
}

std::int64_t trainers_per_pod(const crds::Attempt& attempt) {
  return std::max<std::int64_t>(1, std::min(attempt.per_node, attempt.trainers));
}

void set_environment(Json& container, const crds::TrainingJob& job, const crds::Attempt& attempt) {
  Json& environment = container["env"];
  if (!environment.isArray()) {
    environment = Json(::Json::arrayValue);
  }
  const std::string service = child_name(job.name, attempt.number);
  const std::string master = service + "-0." + service;
  const std::string nodes = std::to_string(nodes_of(attempt));
  const std::string per_pod = std::to_string(trainers_per_pod(attempt));
  Json rank(::Json::objectValue);
  rank["valueFrom"]["fieldRef"]["fieldPath"] = kCompletionIndex;

  add_variable(environment, variable("MASTER_ADDR", master));
  add_variable(environment, variable("MASTER_PORT", std::to_string(kMasterPort)));
  add_variable(environment, variable("WORLD_SIZE", std::to_string(attempt.trainers)));
  add_variable(environment, variable("NNODES", nodes));
  add_variable(environment, variable("NPROC_PER_NODE", per_pod));
  rank["name"] = "NODE_RANK";
  add_variable(environment, rank);
  // torchrun takes its own options from the environment under this prefix (torch.distributed.run,
  // argparse_util.env).
  add_variable(environment, variable("PET_NNODES", nodes));
  add_variable(environment, variable("PET_NPROC_PER_NODE", per_pod));
  add_variable(environment, variable("PET_MASTER_ADDR", master));
  add_variable(environment, variable("PET_MASTER_PORT", std::to_string(kMasterPort)));
  rank["name"] = "PET_NODE_RANK";
  add_variable(environment, rank);
  add_variable(environment, variable("PLIMSOLL_ATTEMPT", std::to_string(attempt.number)));
  if (attempt.expandable_segments) {
    expand_segments(environment);
  }
}

// Whether the container says itself what GPUs it takes: a device of any vendor, a MIG slice or a claim.
bool asks_for_devices(const Json& container) {
  for (const char* kind : {"limits", "requests"}) {
    const Json& resources = member(container, {"resources", kind});
    for (const std::string& name : resources.isObject() ? resources.getMemberNames() : Json::Members()) {
      if (name.find('/') != std::string::npos) {
        return true;
      }
    }
  }
  const Json& claims = member(container, {"resources", "claims"});
  return claims.isArray() && !claims.empty();
}

void mount_plan(Json& pod, Json& container, const std::string& config_map) {
  for (const Json& mount : container["volumeMounts"]) {
    if (text_member(mount, {"mountPath"}) == kPlanDirectory) {
      return;
    }
  }
  Json mount(::Json::objectValue);
  mount["name"] = kPlanVolume;
  mount["mountPath"] = kPlanDirectory;
  mount["readOnly"] = true;
  container["volumeMounts"].append(std::move(mount));
  Json volume(::Json::objectValue);
  volume["name"] = kPlanVolume;
  volume["configMap"]["name"] = config_map;
  pod["volumes"].append(std::move(volume));
}

Json pod_template(const crds::TrainingJob& job, const crds::Attempt& attempt, const std::string& config_map) {
  Json made = member(job.raw, {"spec", "template"});
  const std::string number = std::to_string(attempt.number);
  Json& metadata = made["metadata"];
  metadata["labels"][kJobNameLabel] = short_name(job.name, kLongestChildName);
  metadata["labels"][kAttemptLabel] = number;
  metadata["annotations"][kAttemptLabel] = number;
  metadata["annotations"][kTrainersAnnotation] = std::to_string(attempt.trainers);

  Json& pod = made["spec"];
  pod["restartPolicy"] = "Never";
  pod["subdomain"] = child_name(job.name, attempt.number);
  for (const char* list : {"initContainers", "containers"}) {
    const bool given = pod[list].isArray();
    for (Json& container : pod[list]) {
      // Without it, an exception that is only printed would be lost with the pod.
      add_missing(container, "terminationMessagePolicy", "FallbackToLogsOnError");
    }
    if (!given) {
      pod.removeMember(list);
    }
  }
  Json& containers = pod["containers"];
  const int index = crds::trainer_container(containers);
  if (index >= 0) {
    Json& trainer = containers[static_cast<Json::ArrayIndex>(index)];
    set_environment(trainer, job, attempt);
    mount_plan(pod, trainer, config_map);
    if (!asks_for_devices(trainer)) {
      trainer["resources"]["limits"][crds::kGpuResource] = std::to_string(trainers_per_pod(attempt));
    }
  }
  return made;
}

// A disruption fails the Job under this rule, by whose reason the cause is known even without its pod.
Json failure_policy() {
  Json condition(::Json::objectValue);
  condition["type"] = "DisruptionTarget";
  condition["status"] = "True";
  Json rule(::Json::objectValue);
  rule["action"] = "FailJob";
  rule["onPodConditions"].append(std::move(condition));
  Json policy(::Json::objectValue);
  policy["rules"].append(std::move(rule));
  return policy;
}

void pass_queue_labels(const crds::TrainingJob& job, Json& labels) {
  constexpr std::string_view kPrefix = "kueue.x-k8s.io/";
  const Json& given = member(job.raw, {"metadata", "labels"});
  for (const std::string& name : given.isObject() ? given.getMemberNames() : Json::Members()) {
    if (name.starts_with(kPrefix)) {
      labels[name] = given[name];
    }
  }
}

Json object_of(const char* api_version, const char* kind, Json metadata) {
  Json object(::Json::objectValue);
  object["apiVersion"] = api_version;
  object["kind"] = kind;
  object["metadata"] = std::move(metadata);
  return object;
}

}  // namespace

std::string child_name(const std::string& job, std::int64_t attempt) {
  const std::string suffix = "-" + std::to_string(attempt);
  return short_name(job, kLongestChildName - suffix.size()) + suffix;
}

std::string pods_selector(const std::string& job) {
  return std::string(kJobNameLabel) + "=" + short_name(job, kLongestChildName);
}

std::string pods_selector(const std::string& job, std::int64_t attempt) {
  return pods_selector(job) + "," + kAttemptLabel + "=" + std::to_string(attempt);
}

Json owner_reference(const Json& job) {
  Json reference(::Json::objectValue);
  reference["apiVersion"] = crds::kApiVersion;
  reference["kind"] = "TrainingJob";
  reference["name"] = text_member(job, {"metadata", "name"});
  reference["uid"] = text_member(job, {"metadata", "uid"});
  reference["controller"] = true;
  reference["blockOwnerDeletion"] = true;
  return reference;
}

Result<AttemptChildren> make_children(const crds::TrainingJob& job, const crds::Attempt& attempt,
                                      const std::string& plan) {
  const std::string name = child_name(job.name, attempt.number);
  const std::string plan_name = name + "-plan";
  AttemptChildren children;

  children.plan = object_of("v1", "ConfigMap", metadata_of(job, attempt, plan_name));
  children.plan["immutable"] = true;
  if (plan.size() <= kLargestConfigMap) {
    children.plan["data"]["plan.json"] = plan;
  } else {
    const std::string compressed = gzip(plan);
    if (compressed.size() > kLargestConfigMap) {
      return Error(ErrorCode::kTooLarge, "the plan takes " + std::to_string(compressed.size()) +
                                             " bytes compressed, and a ConfigMap holds " +
                                             std::to_string(kLargestConfigMap));
    }
    children.plan["binaryData"]["plan.json.gz"] = base64_encode(compressed);
  }

  children.service = object_of("v1", "Service", metadata_of(job, attempt, name));
  Json& service = children.service["spec"];
  service["clusterIP"] = "None";
  // Trainers look each other up before any of them is ready.
  service["publishNotReadyAddresses"] = true;
  service["selector"][kJobNameLabel] = short_name(job.name, kLongestChildName);
  service["selector"][kAttemptLabel] = std::to_string(attempt.number);

  children.job = object_of("batch/v1", "Job", metadata_of(job, attempt, name));
  pass_queue_labels(job, children.job["metadata"]["labels"]);
  Json& spec = children.job["spec"];
  spec["completionMode"] = "Indexed";
  spec["completions"] = static_cast<::Json::Int64>(nodes_of(attempt));
  spec["parallelism"] = static_cast<::Json::Int64>(nodes_of(attempt));
  spec["backoffLimit"] = 0;
  spec["podFailurePolicy"] = failure_policy();
  // A pod that terminates may still write checkpoints: it counts until it has ended.
  spec["podReplacementPolicy"] = "Failed";
  spec["template"] = pod_template(job, attempt, plan_name);
  return children;
}

}  // namespace plimsoll::controllers
