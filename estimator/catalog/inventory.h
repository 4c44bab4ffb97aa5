// Inventory: which GPU models a cluster has, from its nodes. Pure; the controller, the webhook's GPUModel
// cache and `plimsoll provision --cluster` all use it. Any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "crds/gpu_model.h"
#include "estimator/catalog/gpu_catalog.h"

namespace plimsoll::estimator::inline catalog {

// A node label that selects one GPU model. GPU feature discovery's nvidia.com/gpu.product is written as its
// value only ("NVIDIA-A100-SXM4-80GB"), any other label as key=value
// ("cloud.google.com/gke-accelerator=nvidia-tesla-a100"), so that both fit in one string of a GPUModel's
// status.
struct NodeLabel {
  std::string key;
  std::string value;
};
NodeLabel parse_product_label(const std::string& spelling);

// The node's label with its CPU architecture ("amd64", "arm64"), set by the kubelet.
inline constexpr const char* kCpuArchitectureLabel = "kubernetes.io/arch";

// Labels with which an administrator, or a probe, says how the GPUs of a node reach host memory and each other: bytes a
// second of a root complex ("24Gi"), GPUs that share it, and "true" or "false".
inline constexpr const char* kHostBandwidthLabel = "plimsoll.dev/host-bandwidth";
inline constexpr const char* kGpusPerRootLabel = "plimsoll.dev/gpus-per-root-complex";
inline constexpr const char* kPeerToPeerLabel = "plimsoll.dev/peer-to-peer";

// The part of a core/v1 Node that the inventory uses.
struct GpuNode {
  std::string name;
  std::string product;              // label nvidia.com/gpu.product; if missing, a cloud's label as key=value
  std::int64_t gpus = 0;            // allocatable nvidia.com/gpu
  Bytes memory_per_gpu{};           // label nvidia.com/gpu.memory (MiB); 0 if absent
  Bytes host_memory{};              // allocatable; 0 if absent
  std::int64_t requested_gpus = 0;  // by pods bound to the node
  std::optional<ComputeCapability> compute_capability{};  // labels nvidia.com/gpu.compute.major and minor
  std::optional<DriverVersion> driver{};                  // labels nvidia.com/cuda.driver-version.*
  std::string cpu_architecture{};                         // label kubernetes.io/arch; empty if absent
  std::optional<crds::HostLinks> host_links{};  // labels plimsoll.dev/...; nothing if all are absent
  bool schedulable = true;  // not cordoned, ready, no NoExecute or NoSchedule taint except nvidia.com/gpu
};

// A GPU model of the cluster: the catalogue's entry with the memory that nodes report, and counts.
struct AvailableGpu {
  GpuModel model;
  // Labels of the nodes, for a node selector or affinity. All have one key: if some nodes of the model have
  // nvidia.com/gpu.product, nodes with only a cloud's label are left out.
  std::vector<std::string> product_labels{};
  std::int64_t total_gpus = 0;     // including those that autoscaling may add
  std::int64_t addable_gpus = 0;   // those that autoscaling may add
  std::int64_t free_gpus = 0;      // existing GPUs that no pod requests
  std::int64_t gpus_per_node = 0;  // of the most common node shape
  std::vector<crds::GpuNodeShape> shapes{};
  // Nodes by how many of their GPUs are free, without those that have none. Empty: not known, or none is free.
  std::vector<crds::GpuNodeShape> free_nodes{};
  Bytes host_memory{};                           // the least allocatable memory of a node; 0: unknown
  std::optional<DriverVersion> oldest_driver{};  // of its nodes; nothing: not known
  std::vector<std::string> cpu_architectures{};  // of its nodes, ordered; empty: not known
  std::optional<crds::HostLinks>
      host_links{};  // what the nodes' labels say, the least of them; also in `model`
};

// Whether the pods of so many trainers, `per_node` or all of them in each, find free GPUs now; where it is not known how these are
// spread over nodes, whether there are enough.
bool can_start(const AvailableGpu& gpu, std::int64_t trainers, std::int64_t per_node);

// Errors: kInvalid if the object is not a Node.
Result<GpuNode> decode_node(const Json& node);

// Models with at least one GPU on a schedulable node, ordered by name. `unknown` receives product labels that
// are not in the catalogue (also of MIG slices and shared GPUs), for a warning; "" for GPUs without a label.
std::vector<AvailableGpu> take_inventory(const std::vector<GpuNode>& nodes, const GpuCatalog& catalog,
                                         std::vector<std::string>* unknown = nullptr);

// The same from the status of the GPUModel resources; the overrides in their spec are applied to the
// catalogue first. Models that autoscaling may add are included, as if they were already there.
std::vector<AvailableGpu> inventory_of(const std::vector<crds::GpuModel>& resources,
                                       const GpuCatalog& catalog);

}  // namespace plimsoll::estimator::catalog
