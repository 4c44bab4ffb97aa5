// What the Kubernetes runtime tells Prometheus, under client-go's names, so that existing dashboards and
// alerts for controllers show ours too:
//
//   workqueue_depth, workqueue_adds_total, workqueue_retries_total, workqueue_queue_duration_seconds,
//   workqueue_work_duration_seconds, workqueue_unfinished_work_seconds,
//   workqueue_longest_running_processor_seconds, all {name}
//   leader_election_master_status, leader_election_slowpath_total, both {name}
//
//   QueueMetrics metrics(registry, "trainingjob");
//   WorkQueue queue({.observer = &metrics});
//   metrics.watch(&queue);                     // for the figures of work that is under way
//
// The registry must outlive both; the queue must outlive the last scrape, or be unwatched first. Thread-safe.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "kube/work_queue.h"

namespace plimsoll::controllers {

class QueueMetrics final : public kube::QueueObserver {
 public:
  QueueMetrics(prometheus::Registry& registry, const std::string& name);

  void depth(std::size_t keys) override;
  void added() override;
  void waited(std::chrono::nanoseconds time) override;
  void worked(std::chrono::nanoseconds time) override;
  void retried() override;

  void watch(const kube::WorkQueue* queue);
  // Brings the figures of work under way up to date; to be called before a scrape.
  void refresh();

 private:
  prometheus::Gauge& depth_;
  prometheus::Counter& adds_;
  prometheus::Counter& retries_;
  prometheus::Histogram& queue_duration_;
  prometheus::Histogram& work_duration_;
  prometheus::Gauge& unfinished_;
  prometheus::Gauge& longest_;
  std::mutex mutex_;
  const kube::WorkQueue* queue_ = nullptr;
};

class ElectionMetrics {
 public:
  ElectionMetrics(prometheus::Registry& registry, const std::string& lease);

  // For LeaderElector's options of like names.
  void master_status(bool leading) { master_.Set(leading ? 1 : 0); }
  void slow_paths(std::uint64_t more) { slow_paths_.Increment(static_cast<double>(more)); }

 private:
  prometheus::Gauge& master_;
  prometheus::Counter& slow_paths_;
};

}  // namespace plimsoll::controllers
