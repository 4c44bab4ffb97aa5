// ResourceMetrics: what a server may use, and what of it is reserved, for Prometheus.
//
// - plimsoll_cpu_limit, plimsoll_memory_limit_bytes, plimsoll_memory_resident_bytes, plimsoll_workers
// - plimsoll_memory_pool_bytes{pool}, plimsoll_memory_reserved_bytes{pool}, plimsoll_memory_rejected_total{pool}
//
// Read when they are asked for. The pools must outlive this.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <utility>
#include <vector>

#include "base/memory_pool.h"
#include "operator/resource_plan.h"

namespace plimsoll::process {

class ResourceMetrics final : public prometheus::Collectable {
 public:
  using Pools = std::vector<std::pair<const char*, const MemoryPool*>>;

  // `workers`: that decide or reconcile at the same time.
  ResourceMetrics(const ResourcePlan& plan, Pools pools, int workers)
      : limits_(plan.limits), pools_(std::move(pools)), workers_(workers) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const ProcessLimits limits_;
  const Pools pools_;
  const int workers_;
};

}  // namespace plimsoll::process
