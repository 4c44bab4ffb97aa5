// ProcessMetrics: which build runs, and what it uses (metrics/catalogue.h), read at each scrape. The names are those that
// Prometheus' client libraries give every process, so that existing dashboards show them.
//
//   OpsServer ops({.metrics = Collectables{registry, std::make_shared<ProcessMetrics>()}});
//
// What the system does not tell is absent from the scrape. Any thread.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <string>
#include <utility>
#include <vector>

namespace plimsoll::process {

class ProcessMetrics final : public prometheus::Collectable {
 public:
  // `root` is put before all paths: "" but in tests.
  explicit ProcessMetrics(std::string root = "") : root_(std::move(root)) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::string root_;
};

}  // namespace plimsoll::process
