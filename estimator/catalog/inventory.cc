#include "estimator/catalog/inventory.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include "base/json/view.h"
#include "base/number.h"
#include "base/quantity.h"
#include "crds/training_job.h"

namespace plimsoll::estimator::inline catalog {
namespace {

// Labels with a node's GPU model, for clusters without GPU feature discovery; the most specific first. Keys:
// cluster-autoscaler's cloud providers, Karpenter, and the clouds' documentation.
constexpr std::array<const char*, 8> kCloudProductLabels = {"cloud.google.com/gke-accelerator",
                                                            "karpenter.k8s.aws/instance-gpu-name",
                                                            "eks.amazonaws.com/instance-gpu-name",
                                                            "k8s.amazonaws.com/accelerator",
                                                            "kubernetes.azure.com/accelerator",
                                                            "gpu.nvidia.com/model",
                                                            "gpu.nvidia.com/class",
                                                            "aliyun.accelerator/nvidia_name"};

// Labels that hold the memory of one GPU in MiB.
constexpr std::array<const char*, 3> kMemoryLabels = {"nvidia.com/gpu.memory",
                                                      "karpenter.k8s.aws/instance-gpu-memory",
                                                      "eks.amazonaws.com/instance-gpu-memory"};

// Far more than any GPU has; a larger label is a mistake (bytes instead of MiB) and is ignored.
constexpr std::int64_t kMaxMemoryMib = 4LL << 20;
constexpr double kMaxGpusPerNode = 4096;

// Number of GPUs that the scheduler can assign; 0 if the value is not a count.
std::int64_t gpu_count(const Json& value) {
  double count = 0;
  if (value.isString()) {
    Result<double> parsed = parse_quantity(text_member(value, {}));
    count = parsed ? *parsed : 0;
  } else {
    count = JsonView(value).number().value_or(0);
  }
  return count >= 1 && count <= kMaxGpusPerNode ? static_cast<std::int64_t>(count) : 0;
}

// A label of the node, whose key may contain dots and slashes; "" if absent.
std::string label(const Json& node, const char* key) {
  return text_member(node, {"metadata", "labels", key});
}

std::string product_of(const Json& node) {
  std::string product = label(node, crds::kGpuProductLabel);
  if (!product.empty()) {
    // A share of a GPU does not have its memory. Feature discovery appends "-SHARED" to the product's name,
    // unless it is configured to rename the resource instead.
    const std::string strategy = label(node, "nvidia.com/gpu.sharing-strategy");
    const bool shared = !strategy.empty() && strategy != "none" && !product.ends_with("-SHARED");
    return shared ? product + "-SHARED" : product;
  }
  for (const char* key : kCloudProductLabels) {
    product = label(node, key);
    if (!product.empty()) {
      return std::string(key) + "=" + product;
    }
  }
  return {};
}

Bytes memory_of(const Json& node) {
  for (const char* key : kMemoryLabels) {
    const std::string text = label(node, key);
    std::int64_t mib = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), mib);
    if (failure == std::errc() && end == text.data() + text.size() && mib > 0 && mib <= kMaxMemoryMib) {
      return Bytes::from_mib(mib);
    }
  }
  return Bytes{};
}

std::optional<ComputeCapability> compute_capability_of(const Json& node) {
  return parse_compute_capability(label(node, "nvidia.com/gpu.compute.major") + "." +
                                  label(node, "nvidia.com/gpu.compute.minor"));
}

// GPU feature discovery's labels of the driver, and those that they replaced (k8s-device-plugin,
// docs/gpu-feature-discovery/README.md).
std::optional<DriverVersion> driver_of(const Json& node) {
  const std::string parts[] = {label(node, "nvidia.com/cuda.driver-version.full"),
                               label(node, "nvidia.com/cuda.driver-version.major") + "." +
                                   label(node, "nvidia.com/cuda.driver-version.minor") + "." +
                                   label(node, "nvidia.com/cuda.driver-version.revision"),
                               label(node, "nvidia.com/cuda.driver.major") + "." +
                                   label(node, "nvidia.com/cuda.driver.minor") + "." +
                                   label(node, "nvidia.com/cuda.driver.rev")};
  for (std::string text : parts) {
    text.erase(text.find_last_not_of('.') + 1);  // of drivers with two numbers
    if (const std::optional<DriverVersion> driver = parse_driver_version(text)) {
      return driver;
    }
  }
  return std::nullopt;
}

// Memory that the scheduler can assign; 0 if the value is not a quantity.
Bytes host_memory_of(const Json& node) {
  const Json& allocatable = member(node, {"status", "allocatable", "memory"});
  const Result<Bytes> bytes = parse_bytes(text_member(allocatable, {}));
  return bytes ? *bytes : Bytes{};
}

// Nothing where a node has none of the labels. A label that is no such value is as if it were absent.
std::optional<crds::HostLinks> host_links_of(const Json& node) {
  crds::HostLinks links;
  const Result<Bytes> bandwidth = parse_bytes(label(node, kHostBandwidthLabel));
  if (bandwidth && *bandwidth > Bytes{}) {
    links.bandwidth = *bandwidth;
  }
  const std::optional<std::int64_t> shared = parse_number<std::int64_t>(label(node, kGpusPerRootLabel));
  if (shared && *shared > 0 && static_cast<double>(*shared) <= kMaxGpusPerNode) {
    links.gpus_per_root = *shared;
  }
  const std::string peers = label(node, kPeerToPeerLabel);
  links.peer_to_peer = peers == "true"    ? crds::PeerToPeer::kSupported
                       : peers == "false" ? crds::PeerToPeer::kUnsupported
                                          : crds::PeerToPeer::kAuto;
  return links == crds::HostLinks() ? std::nullopt : std::optional(links);
}

// What holds on both nodes. What one of them does not say, the other does.
crds::HostLinks weaker(const crds::HostLinks& a, const crds::HostLinks& b) {
  return {.bandwidth = a.bandwidth && b.bandwidth ? std::min(a.bandwidth, b.bandwidth)
                                                  : (a.bandwidth ? a.bandwidth : b.bandwidth),
          .gpus_per_root = std::max(a.gpus_per_root, b.gpus_per_root),
          .peer_to_peer = std::max(a.peer_to_peer, b.peer_to_peer)};
}

// Labels come before what a GPUModel says.
void override_links(GpuModel& model, const crds::HostLinks& labels) {
  crds::HostLinks& links = model.host_links;
  links.bandwidth = labels.bandwidth ? labels.bandwidth : links.bandwidth;
  links.gpus_per_root = labels.gpus_per_root > 0 ? labels.gpus_per_root : links.gpus_per_root;
  links.peer_to_peer =
      labels.peer_to_peer != crds::PeerToPeer::kAuto ? labels.peer_to_peer : links.peer_to_peer;
}

bool repels_pods(const Json& taint) {
  const std::string effect = text_member(taint, {"effect"});
  // Training pods tolerate the taint for nodes reserved for GPU pods.
  return (effect == "NoSchedule" || effect == "NoExecute") &&
         text_member(taint, {"key"}) != crds::kGpuResource;
}

bool is_schedulable(const Json& node) {
  if (JsonView(member(node, {"spec", "unschedulable"})).boolean() == true) {
    return false;
  }
  const Json& taints = member(node, {"spec", "taints"});
  if (taints.isArray() && std::any_of(taints.begin(), taints.end(), repels_pods)) {
    return false;
  }
  // A node without conditions (from a file) counts as ready.
  const Json& conditions = member(node, {"status", "conditions"});
  return !conditions.isArray() ||
         std::none_of(conditions.begin(), conditions.end(), [](const Json& condition) {
           return text_member(condition, {"type"}) == "Ready" && text_member(condition, {"status"}) != "True";
         });
}

// If nodes of one model have different label keys, one key is chosen, because a node selector combines its
// keys with AND: GPU feature discovery's key first, then the cloud's key that most nodes have.
std::string common_key(const std::vector<const GpuNode*>& nodes) {
  std::map<std::string, std::size_t> nodes_by_key;
  for (const GpuNode* node : nodes) {
    ++nodes_by_key[parse_product_label(node->product).key];
  }
  if (nodes_by_key.contains(crds::kGpuProductLabel)) {
    return crds::kGpuProductLabel;
  }
  return std::max_element(nodes_by_key.begin(), nodes_by_key.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

std::vector<crds::GpuNodeShape> shapes_of(const std::map<std::int64_t, std::int64_t>& nodes_by_gpus) {
  std::vector<crds::GpuNodeShape> shapes;
  shapes.reserve(nodes_by_gpus.size());
  for (const auto& [gpus, nodes] : nodes_by_gpus) {
    shapes.push_back({.gpus_per_node = gpus, .nodes = nodes});
  }
  return shapes;
}

// GPUs per node of the most common node shape; if two are equally common, of the larger.
std::int64_t most_common(const std::vector<crds::GpuNodeShape>& shapes) {
  const auto found = std::max_element(shapes.begin(), shapes.end(), [](const auto& a, const auto& b) {
    return std::pair(a.nodes, a.gpus_per_node) < std::pair(b.nodes, b.gpus_per_node);
  });
  return found == shapes.end() ? 0 : found->gpus_per_node;
}

// Adds nodes of the autoscaled shape up to the maximum. Nodes of other shapes do not change.
void add_nodes(AvailableGpu& available, const crds::GpuAutoscaling& autoscaling) {
  auto shape = std::find_if(available.shapes.begin(), available.shapes.end(),
                            [&](const auto& one) { return one.gpus_per_node == autoscaling.gpus_per_node; });
  if (shape == available.shapes.end()) {
    shape = available.shapes.insert(shape, {.gpus_per_node = autoscaling.gpus_per_node, .nodes = 0});
  }
  const std::int64_t nodes = std::max<std::int64_t>(0, autoscaling.max_nodes - shape->nodes);
  shape->nodes += nodes;
  available.addable_gpus = nodes * autoscaling.gpus_per_node;
  available.total_gpus += available.addable_gpus;
  available.gpus_per_node = most_common(available.shapes);
  if (available.product_labels.empty()) {
    available.product_labels = available.model.product_labels;
  }
}

// Where no node says it, the card may.
void add_catalogued_architecture(AvailableGpu& available) {
  if (available.cpu_architectures.empty() && !available.model.cpu_architecture.empty()) {
    available.cpu_architectures.push_back(available.model.cpu_architecture);
  }
}

AvailableGpu count(const GpuModel& model, const std::vector<const GpuNode*>& nodes) {
  AvailableGpu available{.model = model};
  const std::string key = common_key(nodes);
  std::set<std::string> labels;
  std::set<std::string> architectures;
  std::optional<ComputeCapability> least_capability;
  std::map<std::int64_t, std::int64_t> nodes_of_shape;
  std::map<std::int64_t, std::int64_t> nodes_by_free;
  Bytes least_memory;
  Bytes least_host_memory = Bytes::max();
  for (const GpuNode* node : nodes) {
    if (parse_product_label(node->product).key != key) {
      continue;
    }
    labels.insert(node->product);
    available.total_gpus += node->gpus;
    const std::int64_t free = std::clamp<std::int64_t>(node->gpus - node->requested_gpus, 0, node->gpus);
    available.free_gpus += free;
    ++nodes_by_free[free];
    ++nodes_of_shape[node->gpus];
    least_host_memory = std::min(least_host_memory, node->host_memory);
    if (node->driver) {
      available.oldest_driver = std::min(available.oldest_driver.value_or(*node->driver), *node->driver);
    }
    if (node->compute_capability) {
      least_capability =
          std::min(least_capability.value_or(*node->compute_capability), *node->compute_capability);
    }
    if (node->host_links) {
      available.host_links =
          available.host_links ? weaker(*available.host_links, *node->host_links) : *node->host_links;
    }
    if (!node->cpu_architecture.empty()) {
      architectures.insert(node->cpu_architecture);
    }
    if (node->memory_per_gpu.count > 0 && (least_memory.count == 0 || node->memory_per_gpu < least_memory)) {
      least_memory = node->memory_per_gpu;
    }
  }
  available.product_labels.assign(labels.begin(), labels.end());
  available.shapes = shapes_of(nodes_of_shape);
  nodes_by_free.erase(0);
  available.free_nodes = shapes_of(nodes_by_free);
  available.gpus_per_node = most_common(available.shapes);
  available.host_memory = least_host_memory == Bytes::max() ? Bytes{} : least_host_memory;
  if (least_memory.count > 0) {
    available.model.set_reported_memory(least_memory);
  }
  if (least_capability) {
    available.model.compute_capability = least_capability;
  }
  available.cpu_architectures.assign(architectures.begin(), architectures.end());
  if (available.host_links) {
    override_links(available.model, *available.host_links);
  }
  add_catalogued_architecture(available);
  return available;
}

}  // namespace

NodeLabel parse_product_label(const std::string& spelling) {
  const std::size_t equals = spelling.find('=');
  if (equals == std::string::npos) {
    return {.key = crds::kGpuProductLabel, .value = spelling};
  }
  return {.key = spelling.substr(0, equals), .value = spelling.substr(equals + 1)};
}

bool can_start(const AvailableGpu& gpu, std::int64_t trainers, std::int64_t per_node) {
  if (trainers > gpu.free_gpus || gpu.free_nodes.empty()) {
    return trainers <= gpu.free_gpus;
  }
  const std::int64_t of_pod = std::max<std::int64_t>(1, std::min(trainers, per_node));
  std::int64_t places = 0;
  for (const crds::GpuNodeShape& node : gpu.free_nodes) {
    places += node.nodes * (node.gpus_per_node / of_pod);
  }
  return places >= (trainers + of_pod - 1) / of_pod;
}

Result<GpuNode> decode_node(const Json& node) {
  const std::string kind = text_member(node, {"kind"});
  const std::string name = text_member(node, {"metadata", "name"});
  // Items of a List from the API server have no kind of their own.
  if (!node.isObject() || name.empty() || !(kind.empty() || kind == "Node")) {
    return invalid("not a Node object; give what `kubectl get nodes -o yaml` prints",
                   kind.empty() ? name : kind + " " + name);
  }
  return GpuNode{.name = name,
                 .product = product_of(node),
                 .gpus = gpu_count(member(node, {"status", "allocatable", crds::kGpuResource})),
                 .memory_per_gpu = memory_of(node),
                 .host_memory = host_memory_of(node),
                 .requested_gpus = 0,
                 .compute_capability = compute_capability_of(node),
                 .driver = driver_of(node),
                 .cpu_architecture = label(node, kCpuArchitectureLabel),
                 .host_links = host_links_of(node),
                 .schedulable = is_schedulable(node)};
}

std::vector<AvailableGpu> take_inventory(const std::vector<GpuNode>& nodes, const GpuCatalog& catalog,
                                         std::vector<std::string>* unknown) {
  std::map<std::string, std::vector<const GpuNode*>> nodes_of_model;
  std::set<std::string> not_known;
  for (const GpuNode& node : nodes) {
    if (!node.schedulable || node.gpus <= 0) {
      continue;
    }
    const GpuModel* model = catalog.find(parse_product_label(node.product).value);
    if (model == nullptr) {
      not_known.insert(node.product);
    } else {
      nodes_of_model[model->name].push_back(&node);
    }
  }
  if (unknown != nullptr) {
    unknown->assign(not_known.begin(), not_known.end());
  }
  std::vector<AvailableGpu> inventory;
  inventory.reserve(nodes_of_model.size());
  for (const auto& [name, members] : nodes_of_model) {
    inventory.push_back(count(*catalog.find(name), members));
  }
  return inventory;
}

std::vector<AvailableGpu> inventory_of(const std::vector<crds::GpuModel>& resources,
                                       const GpuCatalog& catalog) {
  GpuCatalog extended = catalog;
  for (const crds::GpuModel& resource : resources) {
    // An invalid resource overrides nothing; its status may still count GPUs of a built-in model.
    (void)extended.apply(resource);
  }
  std::vector<AvailableGpu> inventory;
  for (const crds::GpuModel& resource : resources) {
    const crds::GpuModelStatus& status = resource.status;
    const GpuModel* known = extended.find(resource.name);
    if (known == nullptr || (status.total_gpus <= 0 && !resource.spec.autoscaling)) {
      continue;
    }
    AvailableGpu available{.model = *known,
                           .product_labels = status.product_labels,
                           .total_gpus = status.total_gpus,
                           .free_gpus = std::clamp<std::int64_t>(status.free_gpus, 0, status.total_gpus),
                           .gpus_per_node = most_common(status.nodes),
                           .shapes = status.nodes,
                           .free_nodes = status.free_nodes};
    if (status.memory && status.memory->count > 0) {
      available.model.set_reported_memory(*status.memory);
    }
    available.host_memory = status.host_memory.value_or(Bytes{});
    available.host_links = status.host_links;
    if (status.host_links) {
      override_links(available.model, *status.host_links);
    }
    if (status.capabilities) {
      available.model.compute_capability = parse_compute_capability(status.capabilities->compute_capability);
    }
    available.oldest_driver = parse_driver_version(status.driver_version);
    available.cpu_architectures = status.cpu_architectures;
    add_catalogued_architecture(available);
    if (resource.spec.autoscaling) {
      add_nodes(available, *resource.spec.autoscaling);
    }
    inventory.push_back(std::move(available));
  }
  std::sort(inventory.begin(), inventory.end(),
            [](const AvailableGpu& a, const AvailableGpu& b) { return a.model.name < b.model.name; });
  return inventory;
}

}  // namespace plimsoll::estimator::catalog
