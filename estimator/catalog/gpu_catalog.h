// GpuCatalog: what Plimsoll knows of each GPU model before it has seen a cluster: memory as nodes report it,
// bandwidths, fixed costs, and every spelling of its name that nodes wear.
//
//   GpuCatalog catalog = GpuCatalog::built_in();
//   catalog.apply(gpu_model_from_the_cluster);
//   const GpuModel* gpu = catalog.find("NVIDIA-A100-SXM4-80GB");   // by name, or by any product label
//
// Sources of the figures stand beside them in gpu_catalog.cc. A value type: copies are independent; const
// access from any thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "crds/gpu_model.h"

namespace plimsoll::estimator::inline catalog {

struct GpuModel {
  std::string name;  // "A100-80GB": the GPUModel resource's name is its lower-case form
  std::vector<std::string> product_labels;  // values of nvidia.com/gpu.product
  std::vector<std::string> cloud_labels;    // values of other labels: cloud.google.com/gke-accelerator, ...
  std::string family;                       // nvidia.com/gpu.family: "ampere"; empty when not known
  Bytes memory;                             // gpu.memory label in MiB: what nodes report
  Bytes hbm_bandwidth;                      // bytes a second
  Bytes intra_node_bandwidth;               // bytes a second and GPU
  Bytes inter_node_bandwidth;               // bytes a second and GPU
  std::optional<Bytes> cuda_context;        // a GPUModel's; absent: estimator/fixed_costs/table.h
  double relative_cost = 1;                 // per GPU hour, A100-80GB = 1
};

class GpuCatalog {
 public:
  static GpuCatalog built_in();

  // A YAML file: a list of GPUModel objects, or documents of them. Each extends or overrides as `apply`.
  // Errors: kInvalid naming the entry.
  Result<void> apply_file(std::string_view yaml);

  // Fields that the resource sets override; a name unknown so far adds a model (memory is then required:
  // kInvalid). A product label that the resource claims leaves the model that had it. Prices give ratios: the
  // models that have one keep their exact ratio, on the scale of the built-in costs of those that have none.
  Result<void> apply(const crds::GpuModel& resource);

  // By name (any case, blanks as good as dashes), product label, or cloud label; "-SHARED" and "-MIG-..."
  // labels match nothing. Null: unknown.
  const GpuModel* find(std::string_view name_or_label) const;

  const std::vector<GpuModel>& models() const { return models_; }

 private:
  struct Price {
    double per_hour = 0;
    double listed_cost = 0;  // the relative cost before any price was known
  };

  GpuModel* find_name(std::string_view name);
  void settle_prices();

  std::vector<GpuModel> models_;
  std::map<std::string, Price> prices_;  // by model name; those that a resource or file priced
};

}  // namespace plimsoll::estimator::catalog
