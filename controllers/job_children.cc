#include "controllers/job_children.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string_view>

#include "base/base64.h"
#include "base/gzip.h"
#include "base/json/edit.h"
#include "base/json/view.h"
#include "base/quantity.h"
#include "crds/request_id.h"
#include "crds/shared_memory.h"

namespace plimsoll::controllers {
namespace {

// A pod's host name is its Job's name, a dash and its index of up to five digits, in a DNS label of 63.
constexpr std::size_t kMaxChildName = 63 - 6;
// The API server's limit on a ConfigMap's content (core/v1 MaxSecretSize), less what metadata may take.
constexpr std::size_t kLargestConfigMap = (1U << 20U) - (16U << 10U);
constexpr int kMasterPort = 29500;  // torchrun's default

constexpr const char* kPlanVolume = "plimsoll-plan";
constexpr const char* kSwapPlanFile = "swap.json";
constexpr const char* kSharedMemoryVolume = "plimsoll-shm";
constexpr const char* kCompletionIndex = "metadata.annotations['batch.kubernetes.io/job-completion-index']";

// FNV-1a: the same on every machine and in every version, unlike std::hash.
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

void pass_request_id(const crds::TrainingJob& job, const JsonPlace& metadata) {
  if (const std::string id = crds::request_id_of(job.raw); !id.empty()) {
    metadata["annotations"][crds::kRequestIdAnnotation] = id;
  }
}

JsonObject object_of(const char* api_version, const char* kind, const crds::TrainingJob& job,
                     const crds::Attempt& attempt, const std::string& name) {
  JsonObject object;
  object["apiVersion"] = api_version;
  object["kind"] = kind;
  const JsonPlace metadata = object["metadata"];
  metadata["name"] = name;
  metadata["namespace"] = job.namespace_name;
  metadata["ownerReferences"].append(owner_reference(job.raw));
  const JsonPlace labels = metadata["labels"];
  labels["app.kubernetes.io/managed-by"] = "plimsoll";
  labels[kJobNameLabel] = short_name(job.name, kMaxChildName);
  labels[kAttemptLabel] = std::to_string(attempt.number);
  pass_request_id(job, metadata);
  return object;
}

Json variable(const char* name, const std::string& value) {
  return json_object({{"name", name}, {"value", value}});
}

std::optional<JsonPlace> find_variable(const JsonPlace& environment, const std::string& name) {
  for (const JsonPlace& entry : environment.elements()) {
    if (text_member(entry.value(), {"name"}) == name) {
      return entry;
    }
  }
  return std::nullopt;
}

// A variable that the user has set stays.
void add_variable(const JsonPlace& environment, Json entry) {
  if (!find_variable(environment, text_member(entry, {"name"}))) {
    environment.append(std::move(entry));
  }
}

// Adds the setting to the user's own settings of the allocator, in the variable that the user has chosen.
void expand_segments(const JsonPlace& environment) {
  constexpr const char* kSetting = "expandable_segments:True";
  for (const char* name : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"}) {
    if (const std::optional<JsonPlace> entry = find_variable(environment, name)) {
      const std::string value = text_member(entry->value(), {"value"});
      const bool referenced = !member(entry->value(), {"valueFrom"}).isNull();
      if (!referenced && value.find("expandable_segments") == std::string::npos) {
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

Json rank_variable(const char* name) {
  JsonObject json;
  json["name"] = name;
  json["valueFrom"]["fieldRef"]["fieldPath"] = kCompletionIndex;
  return json;
}

void set_environment(const JsonPlace& container, const crds::TrainingJob& job, const crds::Attempt& attempt,
                     bool by_swap_plan) {
  const JsonPlace environment = container["env"];
  const std::string service = child_name(job.name, attempt.number);
  const std::string master = service + "-0." + service;
  const std::string nodes = std::to_string(nodes_of(attempt));
  // One process drives all GPUs of a swap plan.
  const std::string per_pod = by_swap_plan ? "1" : std::to_string(trainers_per_pod(attempt));
  const std::string processes = by_swap_plan ? "1" : std::to_string(attempt.trainers);

  add_variable(environment, variable("MASTER_ADDR", master));
  add_variable(environment, variable("MASTER_PORT", std::to_string(kMasterPort)));
  add_variable(environment, variable("WORLD_SIZE", processes));
  add_variable(environment, variable("NNODES", nodes));
  add_variable(environment, variable("NPROC_PER_NODE", per_pod));
  add_variable(environment, rank_variable("NODE_RANK"));
  // torchrun takes its own options from the environment under this prefix (torch.distributed.run,
  // argparse_util.env).
  add_variable(environment, variable("PET_NNODES", nodes));
  add_variable(environment, variable("PET_NPROC_PER_NODE", per_pod));
  add_variable(environment, variable("PET_MASTER_ADDR", master));
  add_variable(environment, variable("PET_MASTER_PORT", std::to_string(kMasterPort)));
  add_variable(environment, rank_variable("PET_NODE_RANK"));
  add_variable(environment, variable("PLIMSOLL_ATTEMPT", std::to_string(attempt.number)));
  if (attempt.batch_size > 0) {
    add_variable(environment,
                 variable("PLIMSOLL_BATCH_SIZE_PER_TRAINER", std::to_string(attempt.batch_size)));
    add_variable(environment,
                 variable("PLIMSOLL_GRADIENT_ACCUMULATION", std::to_string(attempt.accumulation)));
  }
  if (by_swap_plan) {
    add_variable(environment, variable(kSwapPlanVariable, std::string(kPlanDirectory) + "/" + kSwapPlanFile));
  }
  if (attempt.expandable_segments) {
    expand_segments(environment);
  }
}

// Raises what the container asks for, and its limit: it is killed for memory beyond that.
void ask_for_memory(const JsonPlace& container, Bytes memory) {
  for (const char* kind : {"requests", "limits"}) {
    const Json& amount = member(container.value(), {"resources", kind, "memory"});
    if (quantity_of(amount).value_or(Bytes{}) < memory) {
      container["resources"][kind]["memory"] = format_bytes(memory);
    }
  }
}

// A volume in memory, or the template's own made as large: the API server refuses a second mount of the path. What is not in
// memory, or has no size of its own, stays (crds/shared_memory.h).
void mount_shared_memory(const JsonPlace& pod, const JsonPlace& container, Bytes size) {
  const crds::SharedMemory given = crds::shared_memory_of(pod.value());
  if (given.kind == crds::SharedMemory::Kind::kDefault) {
    container["volumeMounts"].append(
        json_object({{"name", kSharedMemoryVolume}, {"mountPath", crds::kSharedMemoryDirectory}}));
    pod["volumes"].append(
        json_object({{"name", kSharedMemoryVolume},
                     {"emptyDir", json_object({{"medium", "Memory"}, {"sizeLimit", format_bytes(size)}})}}));
  }
  if (given.kind != crds::SharedMemory::Kind::kSized || given.size >= size) {
    return;
  }
  for (const JsonPlace& volume : pod["volumes"].elements()) {
    if (text_member(volume.value(), {"name"}) == given.volume) {
      volume["emptyDir"]["sizeLimit"] = format_bytes(size);
    }
  }
}

// Whether the container requests devices itself: of any vendor, a MIG slice or a claim.
bool requests_devices(const Json& container) {
  for (const char* kind : {"limits", "requests"}) {
    for (const auto& [name, amount] : JsonView(member(container, {"resources", kind})).members()) {
      if (name.find('/') != std::string_view::npos) {
        return true;
      }
    }
  }
  const Json& claims = member(container, {"resources", "claims"});
  return claims.isArray() && !claims.empty();
}

void mount_plan(const JsonPlace& pod, const JsonPlace& container, const std::string& config_map) {
  const JsonPlace mounts = container["volumeMounts"];
  for (const JsonPlace& mount : mounts.elements()) {
    if (text_member(mount.value(), {"mountPath"}) == kPlanDirectory) {
      return;
    }
  }
  mounts.append(json_object({{"name", kPlanVolume}, {"mountPath", kPlanDirectory}, {"readOnly", true}}));
  pod["volumes"].append(
      json_object({{"name", kPlanVolume}, {"configMap", json_object({{"name", config_map}})}}));
}

// Keeps the pod off these nodes. A pod that its template binds to one node is left as it is: elsewhere it would never start.
void avoid(const JsonPlace& pod, const std::vector<std::string>& nodes) {
  if (nodes.empty() || !text_member(pod.value(), {"nodeName"}).empty() ||
      !member(pod.value(), {"nodeSelector", "kubernetes.io/hostname"}).isNull()) {
    return;
  }
  const JsonPlace terms =
      pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
  const bool anywhere = terms.elements().empty();
  if (anywhere) {
    terms.append(Json(::Json::objectValue));
  }
  // One of the terms must hold, and in it each of the requirements; one for metadata.name has exactly one value.
  for (const JsonPlace& term : terms.elements()) {
    if (!anywhere && term.value().empty()) {
      continue;  // holds on no node
    }
    for (const std::string& node : nodes) {
      JsonArray values;
      values.append(node);
      term["matchFields"].append(
          json_object({{"key", "metadata.name"}, {"operator", "NotIn"}, {"values", std::move(values)}}));
    }
  }
}

Result<Json> pod_template(const crds::TrainingJob& job, const crds::Attempt& attempt,
                          const std::string& config_map, const AttemptInputs& inputs) {
  JsonEdit made(member(job.raw, {"spec", "template"}));
  const std::string number = std::to_string(attempt.number);
  const JsonPlace metadata = made["metadata"];
  metadata["labels"][kJobNameLabel] = short_name(job.name, kMaxChildName);
  metadata["labels"][kAttemptLabel] = number;
  metadata["annotations"][kAttemptLabel] = number;
  metadata["annotations"][kTrainersAnnotation] = std::to_string(attempt.trainers);
  pass_request_id(job, metadata);

  const JsonPlace pod = made["spec"];
  pod["restartPolicy"] = "Never";
  pod["subdomain"] = child_name(job.name, attempt.number);
  avoid(pod, attempt.avoid_nodes);
  for (const char* list : {"initContainers", "containers"}) {
    if (member(pod.value(), {list}).isNull()) {
      continue;
    }
    for (const JsonPlace& container : pod[list].elements()) {
      // Otherwise an exception that is only printed would be lost with the pod.
      container.set_missing("terminationMessagePolicy", "FallbackToLogsOnError");
    }
  }
  const int index = crds::trainer_container(member(pod.value(), {"containers"}));
  if (index >= 0) {
    const JsonPlace trainer = pod["containers"].elements().at(static_cast<std::size_t>(index));
    set_environment(trainer, job, attempt, !inputs.swap_plan.empty());
    mount_plan(pod, trainer, config_map);
    if (inputs.host_memory > Bytes{}) {
      ask_for_memory(trainer, inputs.host_memory);
    }
    if (inputs.shared_memory > Bytes{}) {
      mount_shared_memory(pod, trainer, inputs.shared_memory);
    }
    if (!requests_devices(trainer.value())) {
      trainer["resources"]["limits"][crds::kGpuResource] = std::to_string(trainers_per_pod(attempt));
    }
  }
  Result<Json> changed = std::move(made).take();
  return changed ? std::move(changed) : changed.error().within("spec.template");
}

// A disruption fails the Job by this rule; its reason names the cause even without the pod.
Json failure_policy() {
  JsonObject rule;
  rule["action"] = "FailJob";
  rule["onPodConditions"].append(json_object({{"type", "DisruptionTarget"}, {"status", "True"}}));
  JsonObject policy;
  policy["rules"].append(std::move(rule));
  return policy;
}

void pass_queue_labels(const crds::TrainingJob& job, const JsonPlace& labels) {
  constexpr std::string_view kPrefix = "kueue.x-k8s.io/";
  for (const auto& [name, value] : JsonView(member(job.raw, {"metadata", "labels"})).members()) {
    if (name.starts_with(kPrefix)) {
      labels[name] = tree_of(value);
    }
  }
}

}  // namespace

std::string child_name(const std::string& job, std::int64_t attempt) {
  const std::string suffix = "-" + std::to_string(attempt);
  return short_name(job, kMaxChildName - suffix.size()) + suffix;
}

std::string pods_selector(const std::string& job) {
  return std::string(kJobNameLabel) + "=" + short_name(job, kMaxChildName);
}

std::string pods_selector(const std::string& job, std::int64_t attempt) {
  return pods_selector(job) + "," + kAttemptLabel + "=" + std::to_string(attempt);
}

Json owner_reference(const Json& job) {
  return json_object({{"apiVersion", crds::kApiVersion},
                      {"kind", "TrainingJob"},
                      {"name", text_member(job, {"metadata", "name"})},
                      {"uid", text_member(job, {"metadata", "uid"})},
                      {"controller", true},
                      {"blockOwnerDeletion", true}});
}

kube::ObjectReference reference_to(const JsonView& job) {
  return {.api_version = crds::kApiVersion,
          .kind = "TrainingJob",
          .namespace_name = text_member(job, {"metadata", "namespace"}),
          .name = text_member(job, {"metadata", "name"}),
          .uid = text_member(job, {"metadata", "uid"})};
}

Result<AttemptChildren> make_children(const crds::TrainingJob& job, const crds::Attempt& attempt,
                                      const AttemptInputs& inputs) {
  const std::string name = child_name(job.name, attempt.number);
  const std::string plan_name = name + "-plan";
  Result<Json> made_template = pod_template(job, attempt, plan_name, inputs);
  if (!made_template) {
    return made_template.error();
  }

  JsonObject config_map = object_of("v1", "ConfigMap", job, attempt, plan_name);
  config_map["immutable"] = true;
  const std::size_t left = kLargestConfigMap - std::min(kLargestConfigMap, inputs.swap_plan.size());
  if (!inputs.swap_plan.empty()) {
    config_map["data"][kSwapPlanFile] = inputs.swap_plan;
  }
  if (inputs.plan.size() <= left) {
    config_map["data"]["plan.json"] = inputs.plan;
  } else {
    const std::string compressed = gzip(inputs.plan);
    if (compressed.size() > left) {
      return Error(ErrorCode::kTooLarge, "the plan takes " + std::to_string(compressed.size()) +
                                             " bytes compressed, and a ConfigMap holds " +
                                             std::to_string(left));
    }
    config_map["binaryData"]["plan.json.gz"] = base64_encode(compressed);
  }

  JsonObject service = object_of("v1", "Service", job, attempt, name);
  const JsonPlace service_spec = service["spec"];
  service_spec["clusterIP"] = "None";
  // Trainers look each other up before any of them is ready.
  service_spec["publishNotReadyAddresses"] = true;
  service_spec["selector"][kJobNameLabel] = short_name(job.name, kMaxChildName);
  service_spec["selector"][kAttemptLabel] = std::to_string(attempt.number);

  JsonObject child = object_of("batch/v1", "Job", job, attempt, name);
  pass_queue_labels(job, child["metadata"]["labels"]);
  const JsonPlace spec = child["spec"];
  spec["completionMode"] = "Indexed";
  spec["completions"] = nodes_of(attempt);
  spec["parallelism"] = nodes_of(attempt);
  spec["backoffLimit"] = 0;
  spec["podFailurePolicy"] = failure_policy();
  // A pod that terminates may still write checkpoints: it counts until it has ended.
  spec["podReplacementPolicy"] = "Failed";
  spec["template"] = *std::move(made_template);
  return AttemptChildren{.plan = std::move(config_map).take(),
                         .service = std::move(service).take(),
                         .job = std::move(child).take()};
}

}  // namespace plimsoll::controllers
