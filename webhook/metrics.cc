#include "webhook/metrics.h"

#include <utility>

#include "metrics/families.h"

namespace plimsoll::webhook {
namespace {

// From a review without a decision to the API server's default timeout.
const prometheus::Histogram::BucketBoundaries kSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                          0.25,  0.5,    1,     2.5,  5,     10};

metrics::Sample sample(const char* label, const char* value, std::uint64_t count) {
  return {static_cast<double>(count), {{label, value}}};
}

}  // namespace

AdmissionMetrics::AdmissionMetrics(prometheus::Registry& registry)
    : requests_(metrics::counters(registry, "plimsoll_admission_requests_total")),
      duration_(metrics::histograms(registry, "plimsoll_admission_duration_seconds")),
      saved_(metrics::counters(registry, "plimsoll_admission_gpus_saved_total").Add({})) {
  for (const char* webhook : {"mutate", "validate"}) {
    duration_.Add({{"webhook", webhook}}, kSeconds);
  }
}

void AdmissionMetrics::record(const std::string& webhook, bool applied, const std::string& reason,
                              std::chrono::steady_clock::duration duration) {
  requests_.Add({{"webhook", webhook}, {"applied", applied ? "true" : "false"}, {"reason", reason}})
      .Increment();
  duration_.Add({{"webhook", webhook}}, kSeconds).Observe(std::chrono::duration<double>(duration).count());
}

void AdmissionMetrics::record_saved(std::int64_t gpus) {
  saved_.Increment(static_cast<double>(gpus));
}

ServerMetrics::ServerMetrics(const http::Server& server, const http::RenewedCertificateSource& certificates,
                             const DecisionScheduler* scheduler)
    : server_(server), certificates_(certificates), scheduler_(scheduler) {}

std::vector<prometheus::MetricFamily> ServerMetrics::Collect() const {
  const http::ServerStats& stats = server_.stats();
  const http::CertificateStatus certificate = certificates_.status();
  std::vector<prometheus::MetricFamily> families = {
      metrics::gauges("plimsoll_admission_in_flight", {{static_cast<double>(stats.in_flight)}}),
      metrics::gauges("plimsoll_webhook_connections", {{static_cast<double>(stats.open_connections)}}),
      metrics::counters(
          "plimsoll_webhook_rejected_total",
          {sample("reason", "overload", stats.rejected_overload),
           sample("reason", "malformed", stats.rejected_malformed),
           sample("reason", "timeout", stats.rejected_timeout), sample("reason", "tls", stats.rejected_tls),
           sample("reason", "no_descriptor", stats.rejected_no_descriptor),
           sample("reason", "evicted", stats.evicted)}),
      metrics::counters(
          "plimsoll_webhook_certificate_loads_total",
          {sample("result", "taken", certificate.loads), sample("result", "refused", certificate.failures)}),
  };
  if (scheduler_ != nullptr) {
    const DecisionScheduler::Stats decisions = scheduler_->stats();
    families.push_back(metrics::gauges(
        "plimsoll_admission_decisions",
        {sample("state", "running", decisions.running), sample("state", "long", decisions.running_long),
         sample("state", "waiting", decisions.waiting)}));
    families.push_back(metrics::counters(
        "plimsoll_admission_decisions_rejected_total",
        {sample("reason", "busy", decisions.refused), sample("reason", "long", decisions.stopped)}));
  }
  if (certificate.not_after) {
    families.push_back(metrics::gauges(
        "plimsoll_webhook_certificate_expiration_timestamp_seconds",
        {{static_cast<double>(std::chrono::system_clock::to_time_t(*certificate.not_after))}}));
  }
  return families;
}

}  // namespace plimsoll::webhook
