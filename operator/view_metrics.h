// ViewMetrics: what the reflectors behind a process's view of the cluster tell Prometheus. The names say that
// they are the view's: the operator's inventory watches GPUModels, too. Must outlive the keeper that it is
// given to.
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
