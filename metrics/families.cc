#include "metrics/families.h"

#include <utility>

namespace plimsoll::metrics {
namespace {

prometheus::MetricFamily family(const Metric& metric, prometheus::MetricType type,
                                const std::vector<Sample>& samples) {
  prometheus::MetricFamily made;
  made.name = metric.name;
  made.help = metric.help;
  made.type = type;
  for (const Sample& sample : samples) {
    prometheus::ClientMetric one;
    one.label = sample.labels;
    (type == prometheus::MetricType::Counter ? one.counter.value : one.gauge.value) = sample.value;
    made.metric.push_back(std::move(one));
  }
  return made;
}

}  // namespace

prometheus::MetricFamily counters(Of<Type::kCounter> metric, const std::vector<Sample>& samples) {
  return family(*metric, prometheus::MetricType::Counter, samples);
}

prometheus::MetricFamily gauges(Of<Type::kGauge> metric, const std::vector<Sample>& samples) {
  return family(*metric, prometheus::MetricType::Gauge, samples);
}

}  // namespace plimsoll::metrics
