// Metrics of the Kubernetes runtime (metrics/catalogue.h): work queues, leader election, reflectors, events, and the
// requests of a client.
//
//   QueueMetrics metrics(registry, "trainingjob");
//   kube::WorkQueue queue({.observer = &metrics});
//   metrics.watch(&queue);                     // for the metrics of work in progress
//
// The registry must outlive all of them; the queue must outlive the last scrape, unless watch(nullptr) comes
// first. Thread-safe.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "kube/event_recorder.h"
#include "kube/http_client.h"
#include "kube/reflector.h"
#include "kube/work_queue.h"

namespace plimsoll::metrics {

inline double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

class QueueMetrics final : public kube::QueueObserver {
 public:
  QueueMetrics(prometheus::Registry& registry, const std::string& name);

  void depth(std::size_t keys) override { depth_.Set(static_cast<double>(keys)); }
  void added() override { adds_.Increment(); }
  void waited(std::chrono::nanoseconds time) override { queue_duration_.Observe(seconds(time)); }
  void worked(std::chrono::nanoseconds time) override { work_duration_.Observe(seconds(time)); }
  void retried() override { retries_.Increment(); }

  void watch(const kube::WorkQueue* queue);
  // Updates the metrics of work in progress; call it before a scrape.
  void refresh();

 private:
  prometheus::Gauge& depth_;
  prometheus::Counter& adds_;
  prometheus::Counter& retries_;
  prometheus::Histogram& queue_duration_;
  prometheus::Histogram& work_duration_;
  prometheus::Gauge& unfinished_;
  prometheus::Gauge& longest_;
  Mutex mutex_;
  const kube::WorkQueue* queue_ PLIMSOLL_GUARDED_BY(mutex_) = nullptr;
};

// Passes of a controller that threw.
prometheus::Counter& reconcile_panics(prometheus::Registry& registry, const std::string& controller);

class ElectionMetrics {
 public:
  ElectionMetrics(prometheus::Registry& registry, const std::string& lease);

  // For LeaderElector's options on_master_status and on_slow_paths.
  void master_status(bool leading) { master_.Set(leading ? 1 : 0); }
  void slow_paths(std::uint64_t more) { slow_paths_.Increment(static_cast<double>(more)); }

 private:
  prometheus::Gauge& master_;
  prometheus::Counter& slow_paths_;
};

// For Reflector's option `observer`; the name is the resource's.
class ReflectorMetrics final : public kube::ReflectorObserver {
 public:
  ReflectorMetrics(prometheus::Registry& registry, const std::string& name);

  void list_began() override { lists_.Increment(); }
  void listed(std::chrono::nanoseconds time, std::size_t items) override;
  void watch_began() override { watches_.Increment(); }
  void watched(std::chrono::nanoseconds time, std::size_t events) override;
  void watch_was_short() override { short_watches_.Increment(); }
  void version(const std::string& version) override;

 private:
  prometheus::Counter& lists_;
  prometheus::Histogram& list_duration_;
  prometheus::Histogram& items_per_list_;
  prometheus::Counter& watches_;
  prometheus::Histogram& watch_duration_;
  prometheus::Histogram& items_per_watch_;
  prometheus::Counter& short_watches_;
  prometheus::Gauge& last_version_;
};

// For connect(); `server` is the URL of the API server.
class RestClientMetrics final : public kube::ClientObserver {
 public:
  RestClientMetrics(prometheus::Registry& registry, std::string_view server);

  void requested(std::string_view method, int status) override;
  void took(std::string_view method, std::chrono::nanoseconds time) override;

 private:
  prometheus::Histogram& duration_of(std::string_view method);

  const std::string host_;
  prometheus::Family<prometheus::Counter>& requests_;
  prometheus::Family<prometheus::Histogram>& durations_;
};

class EventMetrics {
 public:
  explicit EventMetrics(prometheus::Registry& registry);

  // For EventRecorder's option `on_loss`.
  void lost(kube::EventRecorder::Loss why) { lost_[static_cast<std::size_t>(why)]->Increment(); }

 private:
  std::array<prometheus::Counter*, 3> lost_;  // by Loss
};

}  // namespace plimsoll::metrics
