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

namespace plimsoll::crds {

// Nodes of the model that a cluster's autoscaler may add.
struct GpuAutoscaling {
  std::int64_t max_nodes = 0;  // with those that are there
  std::int64_t gpus_per_node = 0;
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
  std::optional<GpuAutoscaling> autoscaling{};
};

struct GpuNodeShape {
  std::int64_t gpus_per_node = 0;
  std::int64_t nodes = 0;
};

struct GpuModelStatus {
  std::int64_t total_gpus = 0;  // on nodes that take pods
  std::int64_t free_gpus = 0;   // not requested by pods that run or wait on a node
  std::vector<GpuNodeShape> nodes;
  std::vector<std::string> product_labels;  // spellings seen on those nodes
  std::optional<Bytes> memory;              // the least that a node with this model reports
  std::optional<Bytes> host_memory{};       // the least that is allocatable on such a node
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
