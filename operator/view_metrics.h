// ViewMetrics: metrics of the reflectors of a process's view of the cluster. The prefix of their names tells
// them from those of the operator's inventory, which watches GPUModels, too. Must outlive the keeper.
#pragma once

#include <prometheus/registry.h>

#include "metrics/kubernetes_metrics.h"
#include "webhook/cluster_view_keeper.h"

namespace plimsoll::process {

class ViewMetrics {
 public:
  explicit ViewMetrics(prometheus::Registry& registry)
      : gpu_models_(registry, "view-gpumodels"), profiles_(registry, "view-memoryprofiles") {}

  webhook::ClusterViewKeeper::Observers observers() {
    return {.gpu_models = &gpu_models_, .profiles = &profiles_};
  }

 private:
  metrics::ReflectorMetrics gpu_models_;
  metrics::ReflectorMetrics profiles_;
};

}  // namespace plimsoll::process
