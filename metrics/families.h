// Prometheus families of the catalogue's metrics. A name or type that the catalogue does not have does not
// compile.
//
//   prometheus::Registry registry;
//   auto& attempts = metrics::counters(registry, "plimsoll_job_attempts_total");
//   attempts.Add({{"namespace", "ml"}, {"outcome", "Succeeded"}}).Increment();
//
// The registry must outlive the families. Thread-safe as the client library is.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <prometheus/registry.h>

#include <vector>

#include "metrics/catalogue.h"

namespace plimsoll::metrics {

// A metric of the catalogue, by its name.
template <Type kType>
class Of {
 public:
  consteval Of(const char* name) : place_(find(name)) {  // NOLINT: implicit by design
    if (place_ == kCatalogue.size() || kCatalogue[place_].type != kType) {
      throw "the catalogue has no metric of this name and type";
    }
  }
  const Metric* operator->() const { return &kCatalogue[place_]; }
  const Metric& operator*() const { return kCatalogue[place_]; }

 private:
  std::size_t place_;
};

inline prometheus::Family<prometheus::Counter>& counters(prometheus::Registry& registry,
                                                         Of<Type::kCounter> metric) {
  return prometheus::BuildCounter().Name(metric->name).Help(metric->help).Register(registry);
}
inline prometheus::Family<prometheus::Gauge>& gauges(prometheus::Registry& registry,
                                                     Of<Type::kGauge> metric) {
  return prometheus::BuildGauge().Name(metric->name).Help(metric->help).Register(registry);
}
inline prometheus::Family<prometheus::Histogram>& histograms(prometheus::Registry& registry,
                                                             Of<Type::kHistogram> metric) {
  return prometheus::BuildHistogram().Name(metric->name).Help(metric->help).Register(registry);
}

// For collectables, which make their families at each scrape.
struct Sample {
  double value = 0;
  std::vector<prometheus::ClientMetric::Label> labels{};
};
prometheus::MetricFamily counters(Of<Type::kCounter> metric, const std::vector<Sample>& samples);
prometheus::MetricFamily gauges(Of<Type::kGauge> metric, const std::vector<Sample>& samples);

}  // namespace plimsoll::metrics
