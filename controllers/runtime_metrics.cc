#include "controllers/runtime_metrics.h"

#include <charconv>
#include <map>

namespace plimsoll::controllers {
namespace {

using Labels = std::map<std::string, std::string>;

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

prometheus::Gauge& gauge(prometheus::Registry& registry, const char* name, const char* help,
                         const Labels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
}

prometheus::Counter& counter(prometheus::Registry& registry, const char* name, const char* help,
                             const Labels& labels) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
}

// Buckets in powers of ten.
prometheus::Histogram& histogram(prometheus::Registry& registry, const char* name, const char* help,
                                 const Labels& labels, double first, int buckets) {
  prometheus::Histogram::BucketBoundaries bounds;
  for (double bound = first; buckets > 0; --buckets, bound *= 10) {
    bounds.push_back(bound);
  }
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, bounds);
}

// From 10 ns to 1000 s: client-go's, of work queues.
prometheus::Histogram& durations(prometheus::Registry& registry, const char* name, const char* help,
                                 const Labels& labels) {
  return histogram(registry, name, help, labels, 1e-8, 12);
}

prometheus::Counter& lost_events(prometheus::Registry& registry, const char* reason) {
  return counter(registry, "plimsoll_events_lost_total", "Kubernetes events that nobody will see, by reason",
                 {{"reason", reason}});
}

}  // namespace

prometheus::Counter& reconcile_panics(prometheus::Registry& registry, const std::string& controller) {
  return counter(registry, "controller_runtime_reconcile_panics_total",
                 "Passes that threw instead of returning an error, by controller",
                 {{"controller", controller}});
}

QueueMetrics::QueueMetrics(prometheus::Registry& registry, const std::string& name)
    : depth_(gauge(registry, "workqueue_depth", "Keys that wait for a worker", {{"name", name}})),
      adds_(counter(registry, "workqueue_adds_total", "Keys added", {{"name", name}})),
      retries_(counter(registry, "workqueue_retries_total", "Keys added after a delay", {{"name", name}})),
      queue_duration_(durations(registry, "workqueue_queue_duration_seconds",
                                "How long keys waited for a worker", {{"name", name}})),
      work_duration_(durations(registry, "workqueue_work_duration_seconds", "How long workers had them",
                               {{"name", name}})),
      unfinished_(gauge(registry, "workqueue_unfinished_work_seconds",
                        "How long workers have had what they have, in all; large: one is stuck",
                        {{"name", name}})),
      longest_(gauge(registry, "workqueue_longest_running_processor_seconds",
                     "How long the slowest of them has had it", {{"name", name}})) {}

void QueueMetrics::depth(std::size_t keys) {
  depth_.Set(static_cast<double>(keys));
}

void QueueMetrics::added() {
  adds_.Increment();
}

void QueueMetrics::waited(std::chrono::nanoseconds time) {
  queue_duration_.Observe(seconds(time));
}

void QueueMetrics::worked(std::chrono::nanoseconds time) {
  work_duration_.Observe(seconds(time));
}

void QueueMetrics::retried() {
  retries_.Increment();
}

void QueueMetrics::watch(const kube::WorkQueue* queue) {
  const std::lock_guard lock(mutex_);
  queue_ = queue;
}

void QueueMetrics::refresh() {
  const std::lock_guard lock(mutex_);
  const kube::WorkQueue::Unfinished work =
      queue_ != nullptr ? queue_->unfinished() : kube::WorkQueue::Unfinished{};
  unfinished_.Set(seconds(work.in_all));
  longest_.Set(seconds(work.longest));
}

ElectionMetrics::ElectionMetrics(prometheus::Registry& registry, const std::string& lease)
    : master_(
          gauge(registry, "leader_election_master_status", "1 where this process leads", {{"name", lease}})),
      slow_paths_(counter(registry, "leader_election_slowpath_total",
                          "Renewals that had to read the lease first", {{"name", lease}})) {}

// client-go has summaries of these; histograms of the same names have the same _sum and _count, and can be
// added up over replicas.
ReflectorMetrics::ReflectorMetrics(prometheus::Registry& registry, const std::string& name)
    : lists_(counter(registry, "reflector_lists_total", "Lists asked for, whole or not", {{"name", name}})),
      list_duration_(histogram(registry, "reflector_list_duration_seconds", "How long whole lists took",
                               {{"name", name}}, 1e-3, 6)),
      items_per_list_(
          histogram(registry, "reflector_items_per_list", "Objects of whole lists", {{"name", name}}, 1, 7)),
      watches_(counter(registry, "reflector_watches_total", "Watches begun", {{"name", name}})),
      watch_duration_(histogram(registry, "reflector_watch_duration_seconds", "How long watches lasted",
                                {{"name", name}}, 1e-3, 7)),
      items_per_watch_(histogram(registry, "reflector_items_per_watch", "Events of watches, bookmarks too",
                                 {{"name", name}}, 1, 7)),
      short_watches_(counter(registry, "reflector_short_watches_total",
                             "Watches that the server ended at once", {{"name", name}})),
      last_version_(gauge(registry, "reflector_last_resource_version",
                          "The resourceVersion that the copy has reached", {{"name", name}})) {}

void ReflectorMetrics::listed(std::chrono::nanoseconds time, std::size_t items) {
  list_duration_.Observe(seconds(time));
  items_per_list_.Observe(static_cast<double>(items));
}

void ReflectorMetrics::watched(std::chrono::nanoseconds time, std::size_t events) {
  watch_duration_.Observe(seconds(time));
  items_per_watch_.Observe(static_cast<double>(events));
}

// A version that is no number (not kube-apiserver's) leaves the gauge as it is.
void ReflectorMetrics::version(const std::string& version) {
  std::uint64_t number = 0;
  const char* const end = version.data() + version.size();
  const auto [stopped, problem] = std::from_chars(version.data(), end, number);
  if (problem == std::errc() && stopped == end) {
    last_version_.Set(static_cast<double>(number));
  }
}

EventMetrics::EventMetrics(prometheus::Registry& registry)
    : queue_full_(lost_events(registry, "QueueFull")),
      too_many_(lost_events(registry, "TooMany")),
      not_written_(lost_events(registry, "NotWritten")) {}

void EventMetrics::lost(kube::EventRecorder::Loss why) {
  switch (why) {
    case kube::EventRecorder::Loss::kQueueFull: queue_full_.Increment(); return;
    case kube::EventRecorder::Loss::kTooMany: too_many_.Increment(); return;
    case kube::EventRecorder::Loss::kNotWritten: not_written_.Increment(); return;
  }
}

}  // namespace plimsoll::controllers
