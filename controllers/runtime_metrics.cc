#include "controllers/runtime_metrics.h"

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

// From 10 ns to 1000 s, in powers of ten: client-go's.
prometheus::Histogram& durations(prometheus::Registry& registry, const char* name, const char* help,
                                 const Labels& labels) {
  prometheus::Histogram::BucketBoundaries bounds;
  double bound = 1e-8;
  for (int i = 0; i < 12; ++i, bound *= 10) {
    bounds.push_back(bound);
  }
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, bounds);
}

}  // namespace

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

}  // namespace plimsoll::controllers
