// FeatureMetrics: which feature gates are on (crds/feature_gates.h), as Kubernetes' own components export it.
//
//   OpsServer ops({.metrics = Collectables{std::make_shared<FeatureMetrics>(policy.gates)}});
//
// Any thread.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <vector>

#include "crds/feature_gates.h"

namespace plimsoll::process {

class FeatureMetrics final : public prometheus::Collectable {
 public:
  explicit FeatureMetrics(const crds::FeatureGates& gates) : gates_(gates) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const crds::FeatureGates gates_;
};

}  // namespace plimsoll::process
