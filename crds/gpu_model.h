// GPUModel (plimsoll.dev/v1alpha1, cluster-scoped, `gpum`): what one kind of GPU is, and how much of it the
// cluster has. `spec` extends or overrides the built-in catalogue (estimator/catalog); `status` is the
// inventory that the operator keeps from the nodes. Decoding rules as in crds/training_job.h. Plain values;
// any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/json/json.h"
#include "base/result.h"
#include "crds/enums.h"

namespace plimsoll::crds {

// Nodes of the model that a cluster's autoscaler may add.
struct GpuAutoscaling {
  std::int64_t max_nodes = 0;  // with those that are there
  std::int64_t gpus_per_node = 0;
};

// How the GPUs of a node reach host memory and each other, for training through host memory.
struct HostLinks {
  std::optional<Bytes> bandwidth{};  // bytes a second of a root complex, each way
  std::int64_t gpus_per_root = 0;    // that share it; 0: all of the node
  PeerToPeer peer_to_peer = PeerToPeer::kAuto;

  bool operator==(const HostLinks&) const = default;
};

// Fields left empty keep what the built-in catalogue says.
struct GpuModelSpec {
  std::vector<std::string> product_labels;    // values of nvidia.com/gpu.product that mean this model
  std::optional<Bytes> memory;                // as the node reports it
  std::optional<Bytes> hbm_bandwidth;         // bytes a second
  std::optional<Bytes> intra_node_bandwidth;  // NVLink or PCIe, bytes a second and GPU
  std::optional<Bytes> inter_node_bandwidth;  // network, bytes a second and GPU
  std::optional<Bytes> cuda_context;          // outside the framework's allocator
  std::optional<double> cost_per_hour;        // any currency; only ratios matter (objective LowestCost)
  std::string compute_capability{};           // "8.0"; what the nodes' labels say comes before it
  std::optional<HostLinks> host_links{};
  std::optional<GpuAutoscaling> autoscaling{};
};

struct GpuNodeShape {
  std::int64_t gpus_per_node = 0;
  std::int64_t nodes = 0;
};

// What a card can run, by its compute capability (estimator/catalog/capabilities.h).
struct GpuCapabilities {
  std::string compute_capability;              // "8.0"
  std::vector<std::string> native_precisions;  // of FP16, BF16, TF32, FP8
  std::vector<std::string> flash_attention;    // of "2" and "3"
  std::string oldest_cuda;  // "11.0": the first toolkit with code for it; empty: before CUDA 8
  std::string newest_cuda;  // the last one; empty: none has dropped it

  bool operator==(const GpuCapabilities&) const = default;
};

struct GpuModelStatus {
  std::int64_t total_gpus = 0;  // on nodes that take pods
  std::int64_t free_gpus = 0;   // not requested by pods that run or wait on a node
  std::vector<GpuNodeShape> nodes;
  std::vector<std::string> product_labels;        // spellings seen on those nodes
  std::optional<Bytes> memory;                    // the least that a node with this model reports
  std::optional<Bytes> host_memory{};             // the least that is allocatable on such a node
  std::optional<HostLinks> host_links{};          // what their labels say; nothing: nothing
  std::optional<GpuCapabilities> capabilities{};  // nothing: not known
  std::string driver_version{};                   // the oldest on those nodes
  std::vector<std::string> cpu_architectures{};   // of those nodes: "amd64", "arm64"
  std::vector<GpuNodeShape> free_nodes{};         // by their free GPUs; without nodes that have none
};

struct GpuModel {
  std::string name;
  GpuModelSpec spec;
  GpuModelStatus status;
  Json raw;
};

// Errors: kInvalid naming the fields that the schema refuses.
Result<GpuModel> decode_gpu_model(const Json& object);

// The status subresource's content, as `decode_gpu_model` reads it.
Json encode_status(const GpuModelStatus& status);

}  // namespace plimsoll::crds
