// Inventory: which GPU models a cluster has, from its nodes. Pure: the controller, the webhook's GPUModel
// cache and `plimsoll provision --cluster` all count the same way. Any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "crds/gpu_model.h"
#include "estimator/catalog/gpu_catalog.h"

namespace plimsoll::estimator::inline catalog {

// A node label that selects one GPU model. GPU feature discovery's nvidia.com/gpu.product is written as its
// bare value ("NVIDIA-A100-SXM4-80GB"), any other label as key=value
// ("cloud.google.com/gke-accelerator=nvidia-tesla-a100"): one string that survives a GPUModel's status.
struct NodeLabel {
  std::string key;
  std::string value;
};
NodeLabel parse_product_label(const std::string& spelling);

// What the inventory needs to know of a node, read from core/v1 Node.
struct GpuNode {
  std::string name;
  std::string product;     // label nvidia.com/gpu.product, or a cloud's as key=value when that is missing
  std::int64_t gpus = 0;   // allocatable nvidia.com/gpu
  Bytes memory_per_gpu{};  // label nvidia.com/gpu.memory (MiB); 0 when absent
  Bytes host_memory{};     // allocatable; 0 when absent
  std::int64_t requested_gpus = 0;  // by pods bound to it
  bool schedulable = true;          // not cordoned, ready, no NoExecute/NoSchedule taint but nvidia.com/gpu
};

// One GPU model that is present: the catalogue's entry with the node-reported memory, and how many there are.
struct AvailableGpu {
  GpuModel model;
  // Spellings on the nodes; what a node selector or affinity must say. All have one key: nodes that wear only
  // a cloud's label are left out where others of the model wear nvidia.com/gpu.product.
  std::vector<std::string> product_labels;
  std::int64_t total_gpus = 0;     // with those that autoscaling may add
  std::int64_t addable_gpus = 0;   // of them
  std::int64_t free_gpus = 0;      // of those that are there
  std::int64_t gpus_per_node = 0;  // of the commonest node shape
  std::vector<crds::GpuNodeShape> shapes;
  Bytes host_memory{};  // the least that a node has allocatable; 0: not known
};

// Errors: kInvalid when the object is no Node.
Result<GpuNode> decode_node(const Json& node);

// Models with at least one GPU on a schedulable node, by name. `unknown` receives product labels that the
// catalogue does not know (MIG slices and shared GPUs among them), for a warning; "" for GPUs without a
// label.
std::vector<AvailableGpu> take_inventory(const std::vector<GpuNode>& nodes, const GpuCatalog& catalog,
                                         std::vector<std::string>* unknown = nullptr);

// The same from what the operator has written into the GPUModel resources' status; what their spec overrides
// is applied to the catalogue first. Models that autoscaling may bring are there, too, as if it had.
std::vector<AvailableGpu> inventory_of(const std::vector<crds::GpuModel>& resources,
                                       const GpuCatalog& catalog);

}  // namespace plimsoll::estimator::catalog
