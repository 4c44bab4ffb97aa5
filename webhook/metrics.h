// What the webhook tells Prometheus. Names follow docs: prefix plimsoll_, base units.
//
// - plimsoll_admission_requests_total{webhook, applied, reason}; webhook is mutate or validate
// - plimsoll_admission_duration_seconds{webhook}: from the last byte of the header to the answer
// - plimsoll_admission_gpus_saved_total: asked less given, when it was given
// - plimsoll_admission_in_flight: at or waiting for a worker
// - plimsoll_admission_decisions{state}; state is running, long or waiting
// - plimsoll_admission_decisions_rejected_total{reason}; busy: no turn in time, long: stopped for others
// - plimsoll_webhook_connections, plimsoll_webhook_rejected_total{reason}
// - plimsoll_webhook_certificate_expiration_timestamp_seconds
// - plimsoll_webhook_certificate_loads_total{result}
//
// Label values are bounded: reasons are words of ours, never text of a request. Thread-safe.
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

#include "webhook/certificate_source.h"
#include "webhook/decision_scheduler.h"
#include "webhook/http_server.h"

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

// The server's and the certificate's own figures, read when they are asked for. Both must outlive this.
class ServerMetrics : public prometheus::Collectable {
 public:
  // `scheduler` may be null.
  ServerMetrics(const HttpServer& server, const FileCertificateSource& certificates,
                const DecisionScheduler* scheduler = nullptr);
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const HttpServer& server_;
  const FileCertificateSource& certificates_;
  const DecisionScheduler* const scheduler_;
};

}  // namespace plimsoll::webhook
