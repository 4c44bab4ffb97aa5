#include "operator/resource_metrics.h"

#include <utility>

#include "metrics/families.h"

namespace plimsoll::process {
namespace {

double bytes(Bytes of) {
  return static_cast<double>(of.count);
}

}  // namespace

std::vector<prometheus::MetricFamily> ResourceMetrics::Collect() const {
  std::vector<prometheus::MetricFamily> families = {
      metrics::gauges("plimsoll_cpu_limit", {{limits_.cpus}}),
      metrics::gauges("plimsoll_memory_limit_bytes", {{bytes(limits_.memory)}}),
      metrics::gauges("plimsoll_workers", {{static_cast<double>(workers_)}}),
  };
  std::vector<metrics::Sample> limits;
  std::vector<metrics::Sample> reserved;
  std::vector<metrics::Sample> rejected;
  for (const auto& [name, pool] : pools_) {
    const MemoryPool::Stats stats = pool->stats();
    limits.push_back({bytes(stats.limit), {{"pool", name}}});
    reserved.push_back({bytes(stats.reserved), {{"pool", name}}});
    rejected.push_back({static_cast<double>(stats.rejected), {{"pool", name}}});
  }
  if (!pools_.empty()) {
    families.push_back(metrics::gauges("plimsoll_memory_pool_bytes", limits));
    families.push_back(metrics::gauges("plimsoll_memory_reserved_bytes", reserved));
    families.push_back(metrics::counters("plimsoll_memory_rejected_total", rejected));
  }
  return families;
}

}  // namespace plimsoll::process
