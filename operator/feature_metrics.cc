#include "operator/feature_metrics.h"

#include <string>

#include "metrics/families.h"

namespace plimsoll::process {

std::vector<prometheus::MetricFamily> FeatureMetrics::Collect() const {
  std::vector<metrics::Sample> samples;
  for (std::size_t i = 0; i < crds::kFeatures.size(); ++i) {
    const bool on = gates_.enabled(static_cast<crds::Feature>(i));
    samples.push_back({on ? 1.0 : 0.0,
                       {{"name", crds::kFeatures[i].name},
                        {"stage", std::string(crds::name_of(crds::kFeatures[i].stage))}}});
  }
  return {metrics::gauges("kubernetes_feature_enabled", samples)};
}

}  // namespace plimsoll::process
