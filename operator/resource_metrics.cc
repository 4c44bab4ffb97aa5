#include "operator/resource_metrics.h"

#include <utility>

#include "base/allocator.h"

namespace plimsoll::process {
namespace {

prometheus::MetricFamily family(const char* name, const char* help, prometheus::MetricType type,
                                double value) {
  prometheus::MetricFamily made;
  made.name = name;
  made.help = help;
  made.type = type;
  prometheus::ClientMetric metric;
  (type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  made.metric.push_back(std::move(metric));
  return made;
}

double bytes(Bytes of) {
  return static_cast<double>(of.count);
}

}  // namespace

std::vector<prometheus::MetricFamily> ResourceMetrics::Collect() const {
  using prometheus::MetricType;
  std::vector<prometheus::MetricFamily> families = {
      family("plimsoll_cpu_limit", "Processors that the process may use", MetricType::Gauge, limits_.cpus),
      family("plimsoll_memory_limit_bytes", "Memory that the process may use", MetricType::Gauge,
             bytes(limits_.memory)),
      family("plimsoll_memory_resident_bytes", "Memory that the process uses", MetricType::Gauge,
             bytes(resident_memory())),
      family("plimsoll_workers", "Workers that decide or reconcile at the same time", MetricType::Gauge,
             workers_),
  };
  for (const auto& [name, pool] : pools_) {
    const MemoryPool::Stats stats = pool->stats();
    for (prometheus::MetricFamily made :
         {family("plimsoll_memory_pool_bytes", "Memory that work of a kind may reserve", MetricType::Gauge,
                 bytes(stats.limit)),
          family("plimsoll_memory_reserved_bytes", "Memory that is reserved", MetricType::Gauge,
                 bytes(stats.reserved)),
          family("plimsoll_memory_rejected_total", "Reservations that were refused", MetricType::Counter,
                 static_cast<double>(stats.rejected))}) {
      made.metric.front().label.push_back({"pool", name});
      families.push_back(std::move(made));
    }
  }
  return families;
}

}  // namespace plimsoll::process
