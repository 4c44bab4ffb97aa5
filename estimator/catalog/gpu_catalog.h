// GpuCatalog: what is known of each GPU model without a cluster: memory, bandwidths, fixed costs, and every spelling
// of its name in node labels.
//
//   GpuCatalog catalog = GpuCatalog::built_in();
//   catalog.apply(gpu_model_from_the_cluster);
//   const GpuModel* gpu = catalog.find("NVIDIA-A100-SXM4-80GB");   // by name, or by any product label
//
// The sources of the figures are in gpus.yaml. A value type: copies are independent; const access is
// thread-safe.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "crds/gpu_model.h"
#include "estimator/catalog/capabilities.h"

namespace plimsoll::estimator::inline catalog {

struct GpuModel {
  std::string name;  // "A100-80GB": the GPUModel resource's name is its lower-case form
  std::vector<std::string> product_labels{};  // values of nvidia.com/gpu.product
  std::vector<std::string> cloud_labels{};    // values of other labels: cloud.google.com/gke-accelerator, ...
  std::string family{};                       // nvidia.com/gpu.family: "ampere"; empty if unknown
  std::optional<ComputeCapability> compute_capability{};  // nothing: not known, and no card is excluded by it
  std::string cpu_architecture{};                         // of its nodes, where the card determines it
  Bytes memory;                         // that CUDA gives to processes: cudaDeviceProp.totalGlobalMem
  Bytes hbm_bandwidth;                  // bytes per second
  Bytes intra_node_bandwidth;           // bytes per second and GPU
  Bytes inter_node_bandwidth;           // bytes per second and GPU
  std::optional<Bytes> cuda_context{};  // set by a GPUModel; absent: estimator/fixed_costs/table.h
  double relative_cost = 1;             // per GPU hour; A100-80GB = 1
  crds::HostLinks host_links{};         // what a GPUModel or the nodes' labels say
  Bytes driver_memory{};                // that the driver keeps of what nodes report

  // The label gpu.memory and nvidia-smi: with what the driver keeps. Older drivers report less, some of them just what CUDA
  // gives.
  Bytes reported_memory() const { return memory + driver_memory; }
  void set_reported_memory(Bytes reported) {
    memory = reported < reported_memory() ? std::min(memory, reported) : reported - driver_memory;
    driver_memory = reported - memory;
  }
};

class GpuCatalog {
 public:
  static GpuCatalog built_in();

  // Applies a YAML file: a list of GPUModel objects, or documents of them. Each is applied with `apply`.
  // Errors: kInvalid naming the entry.
  Result<void> apply_file(std::string_view yaml);

  // Applies a GPUModel resource: the fields that it sets override those of the catalogue. A new name adds a
  // model (memory is then required: kInvalid). A product label of the resource is removed from other models.
  // Models with a price keep the exact ratio of their prices, on the scale of the built-in costs of the
  // models without one.
  Result<void> apply(const crds::GpuModel& resource);

  // Finds a model by name (case-insensitive; blanks count as dashes), product label, or cloud label. Labels
  // with "-SHARED" or "-MIG-..." match nothing. Null if unknown.
  const GpuModel* find(std::string_view name_or_label) const;

  const std::vector<GpuModel>& models() const { return models_; }

 private:
  struct Price {
    double per_hour = 0;
    double listed_cost = 0;  // the relative cost without any prices
  };

  GpuModel* find_name(std::string_view name);
  void update_relative_costs();

  std::vector<GpuModel> models_;
  std::map<std::string, Price> prices_;  // by model name: prices set by a resource or file
};

// "16 x A100-80GB"
std::string gpus_text(std::int64_t count, const std::string& model);

}  // namespace plimsoll::estimator::catalog
