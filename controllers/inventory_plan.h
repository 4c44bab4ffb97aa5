// The arithmetic of the GPU inventory, without I/O: which fields of nodes and pods are kept, how many GPUs
// pods hold, and which GPUModel objects must be written. Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/json/json.h"
#include "base/json/view.h"
#include "crds/gpu_model.h"
#include "estimator/catalog/inventory.h"

namespace plimsoll::controllers {

// The fields of a Node that estimator::decode_node reads.
Json project_node(const JsonView& node);

// Name, node and GPUs of a pod that holds GPUs of a node; null for any other pod.
Json project_pod(const JsonView& pod);

// GPUs that the scheduler sets aside for the pod: the larger of what its containers need together and what
// any step of its initialisation needs.
std::int64_t gpus_of_pod(const JsonView& pod);

// The nodes, with the GPUs that `pods` (projected) hold on them. Nodes that cannot be decoded are left out.
std::vector<estimator::GpuNode> count_nodes(const std::vector<Json>& nodes, const std::vector<Json>& pods);

// The GPUModel object's name: lower case, as Kubernetes requires.
std::string resource_name(const std::string& model_name);

struct InventoryWrite {
  enum class Kind { kCreate, kUpdateStatus };
  Kind kind = Kind::kUpdateStatus;
  std::string name;
  Json object;  // kCreate: without status; kUpdateStatus: with its resourceVersion
  Json status;  // to be written after a kCreate
};

// What must be written so that each model in `present` has a GPUModel with these counts, and every other
// GPUModel has zeros. Objects that are right already are not written. By name.
std::vector<InventoryWrite> plan_inventory(const std::vector<estimator::AvailableGpu>& present,
                                           const std::vector<crds::GpuModel>& existing);

}  // namespace plimsoll::controllers
