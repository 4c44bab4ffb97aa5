// The webhook's metrics (metrics/catalogue.h) as Prometheus collects them.
//
//   AdmissionMetrics metrics(registry);
//   metrics.record("mutate", true, "Provisioned", duration);
//
// Thread-safe.
#pragma once

#include <prometheus/collectable.h>
#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "http/certificate_source.h"
#include "http/server.h"
#include "webhook/decision_scheduler.h"

namespace plimsoll::webhook {

class AdmissionMetrics {
 public:
  // The registry must outlive this.
  explicit AdmissionMetrics(prometheus::Registry& registry);

  void record(const std::string& webhook, bool applied, const std::string& reason,
              std::chrono::steady_clock::duration duration);
  void record_saved(std::int64_t gpus);

 private:
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Histogram>& duration_;
  prometheus::Counter& saved_;
};

// Metrics of the server and the certificate, read at each scrape. Both must outlive this.
class ServerMetrics : public prometheus::Collectable {
 public:
  // `scheduler` may be null.
  ServerMetrics(const http::Server& server, const http::RenewedCertificateSource& certificates,
                const DecisionScheduler* scheduler = nullptr);
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const http::Server& server_;
  const http::RenewedCertificateSource& certificates_;
  const DecisionScheduler* const scheduler_;
};

}  // namespace plimsoll::webhook
