#include "controllers/inventory_plan.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "base/json/edit.h"
#include "base/quantity.h"
#include "crds/training_job.h"

namespace plimsoll::controllers {
namespace {

// The schema's maxItems for the lists of a status.
constexpr std::size_t kMaxListed = 64;

void copy_member(const JsonView& from, JsonObject& to, std::string_view part, std::string_view field) {
  if (const JsonView value = member(from, {part, field}); !value.is_null()) {
    to[part][field] = tree_of(value);
  }
}

void copy_identity(const JsonView& from, JsonObject& to) {
  for (const std::string_view field : {"name", "namespace", "uid", "resourceVersion"}) {
    copy_member(from, to, "metadata", field);
  }
}

std::int64_t gpus_of_container(const JsonView& container) {
  // For extended resources requests equal limits, and default to them (core/v1 defaults).
  for (const std::string_view kind : {"requests", "limits"}) {
    const JsonView amount = member(container, {"resources", kind, crds::kGpuResource});
    if (const std::optional<std::int64_t> count = amount.integer()) {
      return std::max<std::int64_t>(*count, 0);
    }
    if (const std::optional<std::string_view> text = amount.text()) {
      const Result<Bytes> count = parse_bytes(std::string(*text));
      return count ? count->count : 0;
    }
  }
  return 0;
}

std::int64_t sum(std::int64_t a, std::int64_t b) {
  return (Bytes{a} + Bytes{b}).count;  // saturates: a pod may request any number
}

}  // namespace

Json project_node(const JsonView& node) {
  JsonObject kept;
  kept["apiVersion"] = "v1";
  kept["kind"] = "Node";
  copy_identity(node, kept);
  copy_member(node, kept, "metadata", "labels");
  copy_member(node, kept, "spec", "unschedulable");
  copy_member(node, kept, "spec", "taints");
  copy_member(node, kept, "status", "allocatable");
  for (const JsonView condition : member(node, {"status", "conditions"}).elements()) {
    if (text_member(condition, {"type"}) == "Ready") {
      kept["status"]["conditions"].append(  // without its heartbeat
          json_object({{"type", "Ready"}, {"status", tree_of(member(condition, {"status"}))}}));
    }
  }
  return kept;
}

std::int64_t gpus_of_pod(const JsonView& pod) {
  // KEP-753: sidecars (init containers that restart always) run beside all that starts after them.
  std::int64_t running = 0;
  std::int64_t sidecars = 0;
  std::int64_t starting = 0;
  for (const JsonView container : member(pod, {"spec", "initContainers"}).elements()) {
    const std::int64_t gpus = gpus_of_container(container);
    if (text_member(container, {"restartPolicy"}) == "Always") {
      sidecars = sum(sidecars, gpus);
      starting = std::max(starting, sidecars);
    } else {
      starting = std::max(starting, sum(sidecars, gpus));
    }
  }
  for (const JsonView container : member(pod, {"spec", "containers"}).elements()) {
    running = sum(running, gpus_of_container(container));
  }
  return std::max(sum(running, sidecars), starting);
}

Json project_pod(const JsonView& pod) {
  const std::string node = text_member(pod, {"spec", "nodeName"});
  const std::string phase = text_member(pod, {"status", "phase"});
  const std::int64_t gpus = gpus_of_pod(pod);
  if (node.empty() || gpus == 0 || phase == "Succeeded" || phase == "Failed") {
    return {};
  }
  JsonObject kept;
  copy_identity(pod, kept);
  kept["node"] = node;
  kept["gpus"] = gpus;
  return kept;
}

std::vector<estimator::GpuNode> count_nodes(const std::vector<Json>& nodes, const std::vector<Json>& pods) {
  std::map<std::string, std::int64_t> held;
  for (const Json& pod : pods) {
    std::int64_t& gpus = held[text_member(pod, {"node"})];
    gpus = sum(gpus, JsonView(member(pod, {"gpus"})).integer().value_or(0));
  }
  std::vector<estimator::GpuNode> counted;
  for (const Json& node : nodes) {
    Result<estimator::GpuNode> decoded = estimator::decode_node(node);
    if (decoded) {
      const auto found = held.find(decoded->name);
      decoded->requested_gpus = found == held.end() ? 0 : found->second;
      counted.push_back(std::move(*decoded));
    }
  }
  return counted;
}

std::string resource_name(const std::string& model_name) {
  std::string name = model_name;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

std::vector<InventoryWrite> plan_inventory(const std::vector<estimator::AvailableGpu>& present,
                                           const std::vector<crds::GpuModel>& existing) {
  std::map<std::string, crds::GpuModelStatus> wanted;
  for (const estimator::AvailableGpu& gpu : present) {
    crds::GpuModelStatus& status = wanted[resource_name(gpu.model.name)];
    status.total_gpus = gpu.total_gpus;
    status.free_gpus = gpu.free_gpus;
    status.nodes = gpu.shapes;
    status.free_nodes = gpu.free_nodes;
    status.product_labels = gpu.product_labels;
    status.memory = gpu.model.reported_memory();
    if (gpu.host_memory > Bytes{}) {
      status.host_memory = gpu.host_memory;
    }
    status.host_links = gpu.host_links;
    if (gpu.model.compute_capability) {
      status.capabilities = estimator::described(*gpu.model.compute_capability);
    }
    if (gpu.oldest_driver) {
      status.driver_version = to_string(*gpu.oldest_driver);
    }
    status.cpu_architectures = gpu.cpu_architectures;
    status.nodes.resize(std::min(status.nodes.size(), kMaxListed));
    status.free_nodes.resize(std::min(status.free_nodes.size(), kMaxListed));
    status.product_labels.resize(std::min(status.product_labels.size(), kMaxListed));
  }
  std::map<std::string, InventoryWrite> writes;
  for (const crds::GpuModel& model : existing) {
    const auto found = wanted.find(model.name);
    const Json status = crds::encode_status(found == wanted.end() ? crds::GpuModelStatus{} : found->second);
    if (found != wanted.end()) {
      wanted.erase(found);
    }
    if (member(model.raw, {"status"}).isObject() && crds::encode_status(model.status) == status) {
      continue;
    }
    Json changed = model.raw;
    set_member(changed, "status", status);
    writes[model.name] = {InventoryWrite::Kind::kUpdateStatus, model.name, std::move(changed), {}};
  }
  for (const auto& [name, status] : wanted) {
    Json object = json_object({{"apiVersion", crds::kApiVersion},
                               {"kind", "GPUModel"},
                               {"metadata", json_object({{"name", name}})},
                               {"spec", Json(::Json::objectValue)}});
    writes[name] = {InventoryWrite::Kind::kCreate, name, std::move(object), crds::encode_status(status)};
  }
  std::vector<InventoryWrite> ordered;
  ordered.reserve(writes.size());
  for (auto& [name, write] : writes) {
    ordered.push_back(std::move(write));
  }
  return ordered;
}

}  // namespace plimsoll::controllers
