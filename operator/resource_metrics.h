// ResourceMetrics: the limits of a server and its reservations (metrics/catalogue.h), read at each scrape.
// The pools must outlive this.
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

  // `workers`: how many decide or reconcile at the same time.
  ResourceMetrics(const ResourcePlan& plan, Pools pools, int workers)
      : limits_(plan.limits), pools_(std::move(pools)), workers_(workers) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const ProcessLimits limits_;
  const Pools pools_;
  const int workers_;
};

}  // namespace plimsoll::process
