#include "metrics/kubernetes_metrics.h"

#include <charconv>

#include "metrics/families.h"

namespace plimsoll::metrics {
namespace {

// In powers of ten.
prometheus::Histogram::BucketBoundaries buckets(double first, int count) {
  prometheus::Histogram::BucketBoundaries bounds;
  for (double bound = first; count > 0; --count, bound *= 10) {
    bounds.push_back(bound);
  }
  return bounds;
}

// From 10 ns to 1000 s: client-go's, of work queues.
prometheus::Histogram::BucketBoundaries durations() {
  return buckets(1e-8, 12);
}

// Those of Kubernetes' own components.
prometheus::Histogram::BucketBoundaries request_durations() {
  return {0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60};
}

// "10.0.0.1:6443" of "https://10.0.0.1:6443/a/path".
std::string host_of(std::string_view url) {
  const std::size_t scheme = url.find("://");
  const std::string_view rest = scheme == url.npos ? url : url.substr(scheme + 3);
  return std::string(rest.substr(0, rest.find('/')));
}

prometheus::Counter& lost_events(prometheus::Registry& registry, const char* reason) {
  return counters(registry, "plimsoll_events_lost_total").Add({{"reason", reason}});
}

}  // namespace

prometheus::Counter& reconcile_panics(prometheus::Registry& registry, const std::string& controller) {
  return counters(registry, "controller_runtime_reconcile_panics_total").Add({{"controller", controller}});
}

QueueMetrics::QueueMetrics(prometheus::Registry& registry, const std::string& name)
    : depth_(gauges(registry, "workqueue_depth").Add({{"name", name}})),
      adds_(counters(registry, "workqueue_adds_total").Add({{"name", name}})),
      retries_(counters(registry, "workqueue_retries_total").Add({{"name", name}})),
      queue_duration_(
          histograms(registry, "workqueue_queue_duration_seconds").Add({{"name", name}}, durations())),
      work_duration_(
          histograms(registry, "workqueue_work_duration_seconds").Add({{"name", name}}, durations())),
      unfinished_(gauges(registry, "workqueue_unfinished_work_seconds").Add({{"name", name}})),
      longest_(gauges(registry, "workqueue_longest_running_processor_seconds").Add({{"name", name}})) {}

void QueueMetrics::watch(const kube::WorkQueue* queue) {
  const MutexLock lock(mutex_);
  queue_ = queue;
}

void QueueMetrics::refresh() {
  const MutexLock lock(mutex_);
  const kube::WorkQueue::Unfinished work =
      queue_ != nullptr ? queue_->unfinished() : kube::WorkQueue::Unfinished{};
  unfinished_.Set(seconds(work.total));
  longest_.Set(seconds(work.longest));
}

ElectionMetrics::ElectionMetrics(prometheus::Registry& registry, const std::string& lease)
    : master_(gauges(registry, "leader_election_master_status").Add({{"name", lease}})),
      slow_paths_(counters(registry, "leader_election_slowpath_total").Add({{"name", lease}})) {}

// client-go has summaries here; histograms of the same names have the same _sum and _count, and can be added
// up over replicas.
ReflectorMetrics::ReflectorMetrics(prometheus::Registry& registry, const std::string& name)
    : lists_(counters(registry, "reflector_lists_total").Add({{"name", name}})),
      list_duration_(
          histograms(registry, "reflector_list_duration_seconds").Add({{"name", name}}, buckets(1e-3, 6))),
      items_per_list_(histograms(registry, "reflector_items_per_list").Add({{"name", name}}, buckets(1, 7))),
      watches_(counters(registry, "reflector_watches_total").Add({{"name", name}})),
      watch_duration_(
          histograms(registry, "reflector_watch_duration_seconds").Add({{"name", name}}, buckets(1e-3, 7))),
      items_per_watch_(
          histograms(registry, "reflector_items_per_watch").Add({{"name", name}}, buckets(1, 7))),
      short_watches_(counters(registry, "reflector_short_watches_total").Add({{"name", name}})),
      last_version_(gauges(registry, "reflector_last_resource_version").Add({{"name", name}})) {}

void ReflectorMetrics::listed(std::chrono::nanoseconds time, std::size_t items) {
  list_duration_.Observe(seconds(time));
  items_per_list_.Observe(static_cast<double>(items));
}

void ReflectorMetrics::watched(std::chrono::nanoseconds time, std::size_t events) {
  watch_duration_.Observe(seconds(time));
  items_per_watch_.Observe(static_cast<double>(events));
}

// A version that is not a number (of another server than kube-apiserver) does not change the gauge.
void ReflectorMetrics::version(const std::string& version) {
  std::uint64_t number = 0;
  const char* const end = version.data() + version.size();
  const auto [stopped, problem] = std::from_chars(version.data(), end, number);
  if (problem == std::errc() && stopped == end) {
    last_version_.Set(static_cast<double>(number));
  }
}

// Every method has its series from the start: a rate needs two samples.
RestClientMetrics::RestClientMetrics(prometheus::Registry& registry, std::string_view server)
    : host_(host_of(server)),
      requests_(counters(registry, "rest_client_requests_total")),
      durations_(histograms(registry, "rest_client_request_duration_seconds")) {
  for (const char* method : {"DELETE", "GET", "PATCH", "POST", "PUT"}) {
    duration_of(method);
  }
}

void RestClientMetrics::requested(std::string_view method, int status) {
  requests_
      .Add({{"code", status == 0 ? "<error>" : std::to_string(status)},
            {"method", std::string(method)},
            {"host", host_}})
      .Increment();
}

void RestClientMetrics::took(std::string_view method, std::chrono::nanoseconds time) {
  duration_of(method).Observe(seconds(time));
}

prometheus::Histogram& RestClientMetrics::duration_of(std::string_view method) {
  return durations_.Add({{"verb", std::string(method)}, {"host", host_}}, request_durations());
}

EventMetrics::EventMetrics(prometheus::Registry& registry)
    : lost_{&lost_events(registry, "QueueFull"), &lost_events(registry, "TooMany"),
            &lost_events(registry, "NotWritten")} {}

}  // namespace plimsoll::metrics
