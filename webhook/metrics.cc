#include "webhook/metrics.h"

#include <utility>

namespace plimsoll::webhook {
namespace {

// From a review that needs no decision to the longest that the API server waits.
const prometheus::Histogram::BucketBoundaries kSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                          0.25,  0.5,    1,     2.5,  5,     10};

prometheus::MetricFamily family(const char* name, const char* help, prometheus::MetricType type) {
  prometheus::MetricFamily made;
  made.name = name;
  made.help = help;
  made.type = type;
  return made;
}

prometheus::MetricFamily gauge(const char* name, const char* help, double value) {
  prometheus::MetricFamily made = family(name, help, prometheus::MetricType::Gauge);
  prometheus::ClientMetric metric;
  metric.gauge.value = value;
  made.metric.push_back(std::move(metric));
  return made;
}

void add_counter(prometheus::MetricFamily& to, const char* label, const char* value, std::uint64_t count) {
  prometheus::ClientMetric metric;
  metric.label.push_back({label, value});
  metric.counter.value = static_cast<double>(count);
  to.metric.push_back(std::move(metric));
}

}  // namespace

AdmissionMetrics::AdmissionMetrics(prometheus::Registry& registry)
    : requests_(prometheus::BuildCounter()
                    .Name("plimsoll_admission_requests_total")
                    .Help("Admission reviews answered, by whether a patch was given and why")
                    .Register(registry)),
      duration_(prometheus::BuildHistogram()
                    .Name("plimsoll_admission_duration_seconds")
                    .Help("Time from the end of a request's header to its answer")
                    .Register(registry)),
      saved_(prometheus::BuildCounter()
                 .Name("plimsoll_admission_gpus_saved_total")
                 .Help("GPUs asked for less GPUs given, over all jobs that were given fewer")
                 .Register(registry)
                 .Add({})) {
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

ServerMetrics::ServerMetrics(const http::Server& server, const http::FileCertificateSource& certificates,
                             const DecisionScheduler* scheduler)
    : server_(server), certificates_(certificates), scheduler_(scheduler) {}

std::vector<prometheus::MetricFamily> ServerMetrics::Collect() const {
  using prometheus::MetricType;
  const http::ServerStats stats = server_.stats();
  std::vector<prometheus::MetricFamily> families;
  families.push_back(gauge("plimsoll_admission_in_flight", "Requests at or waiting for a worker",
                           static_cast<double>(stats.in_flight)));
  families.push_back(
      gauge("plimsoll_webhook_connections", "Open connections", static_cast<double>(stats.open_connections)));

  prometheus::MetricFamily rejected =
      family("plimsoll_webhook_rejected_total", "Requests and connections refused before a handler saw them",
             MetricType::Counter);
  add_counter(rejected, "reason", "overload", stats.rejected_overload);
  add_counter(rejected, "reason", "malformed", stats.rejected_malformed);
  add_counter(rejected, "reason", "timeout", stats.rejected_timeout);
  add_counter(rejected, "reason", "tls", stats.rejected_tls);
  add_counter(rejected, "reason", "no_descriptor", stats.rejected_no_descriptor);
  add_counter(rejected, "reason", "evicted", stats.evicted);
  families.push_back(std::move(rejected));

  if (scheduler_ != nullptr) {
    const DecisionScheduler::Stats decisions = scheduler_->stats();
    prometheus::MetricFamily now =
        family("plimsoll_admission_decisions", "Decisions under way, by state", MetricType::Gauge);
    for (const auto& [state, count] :
         {std::pair("running", decisions.running), std::pair("long", decisions.running_long),
          std::pair("waiting", decisions.waiting)}) {
      prometheus::ClientMetric metric;
      metric.label.push_back({"state", state});
      metric.gauge.value = static_cast<double>(count);
      now.metric.push_back(std::move(metric));
    }
    families.push_back(std::move(now));
    prometheus::MetricFamily without = family("plimsoll_admission_decisions_rejected_total",
                                              "Decisions refused or stopped for others", MetricType::Counter);
    add_counter(without, "reason", "busy", decisions.refused);
    add_counter(without, "reason", "long", decisions.stopped);
    families.push_back(std::move(without));
  }

  prometheus::MetricFamily loads = family("plimsoll_webhook_certificate_loads_total",
                                          "Readings of the certificate's files", MetricType::Counter);
  add_counter(loads, "result", "taken", certificates_.loads());
  add_counter(loads, "result", "refused", certificates_.failures());
  families.push_back(std::move(loads));
  if (const std::optional<Clock::WallTime> expiry = certificates_.not_after()) {
    families.push_back(gauge("plimsoll_webhook_certificate_expiration_timestamp_seconds",
                             "When the serving certificate expires, as Unix time",
                             static_cast<double>(std::chrono::system_clock::to_time_t(*expiry))));
  }
  return families;
}

}  // namespace plimsoll::webhook
