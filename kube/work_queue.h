// WorkQueue: the keys of objects to be reconciled, with the semantics of client-go's rate-limiting work queue
// (util/workqueue): a key is in the queue once, however often it is added; it is never given to two workers
// at the same time; and a key that is added while a worker has it is queued again when that worker is done.
//
//   while (std::optional<std::string> key = queue.get(stop)) {
//     if (reconcile(*key)) queue.forget(*key); else queue.add_rate_limited(*key);
//     queue.done(*key);   // always, also after a failure
//   }
//
// Unlike client-go's queue it is fair: namespaces (the part of a key before its slash) take turns, each with
// its keys in the order in which they were added. One of several workers is never given to the namespace that
// has all the others, so that slow objects of one namespace do not delay those of others.
//
// Delayed keys (`add_after`) wait in an ordered map; a key that is delayed again keeps the earlier time. The
// queue has no thread: each call first moves the keys that are due, in the order of their times, so its
// result is the same as if each key had been added when it was due. After `shut_down` no key can be added,
// delayed keys are dropped, and workers get the remaining keys, then nothing.
//
// Time comes from a Clock, which tests may control; only `get` and `drain` really wait. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace plimsoll::kube {

// client-go's metrics of a queue, whose names follow each; the default ignores them. Called with the queue
// locked, from any thread: implementations must be quick and must not call the queue.
class QueueObserver {
 public:
  virtual ~QueueObserver() = default;
  virtual void depth(std::size_t /*keys*/) {}                // workqueue_depth
  virtual void added() {}                                    // workqueue_adds_total
  virtual void waited(std::chrono::nanoseconds /*time*/) {}  // workqueue_queue_duration_seconds
  virtual void worked(std::chrono::nanoseconds /*time*/) {}  // workqueue_work_duration_seconds
  virtual void retried() {}                                  // workqueue_retries_total
};

class WorkQueue {
 public:
  struct Options {
    RetryDelays::Options retries = {};
    // The number of workers: a namespace has at most one fewer of them. Up to 1: no such limit.
    int workers = 0;
    const Clock* clock = &system_clock();
    QueueObserver* observer = nullptr;  // must outlive the queue; null: none
  };

  // Work in progress, for workqueue_unfinished_work_seconds and workqueue_longest_running_processor_seconds.
  struct Unfinished {
    std::chrono::nanoseconds total{};
    std::chrono::nanoseconds longest{};
  };

  explicit WorkQueue(Options options);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  void add(const std::string& key);
  void add_after(const std::string& key, std::chrono::nanoseconds delay);
  void add_rate_limited(const std::string& key);
  // The key's next failure counts as its first. It stays in the queue.
  void forget(const std::string& key);
  int failures(const std::string& key) const;

  // Waits for the next key, which is being processed until `done`. Nothing: the queue was shut down and is
  // empty, or a stop was requested.
  std::optional<std::string> get(const std::stop_token& stop);
  // The same without waiting.
  std::optional<std::string> try_get();
  void done(const std::string& key);

  void shut_down();
  // shut_down(), then waits until no key is being processed; workers go on. False: a stop was requested.
  bool drain(const std::stop_token& stop);

  std::size_t size();  // keys that wait for a worker
  // When the first delayed key is due.
  std::optional<Clock::SteadyTime> next_due() const;
  Unfinished unfinished() const;
  // For how long no key was finished while keys are being processed; zero when none is.
  std::chrono::nanoseconds stalled_for() const;

 private:
  using Time = Clock::SteadyTime;
  struct Flow {                       // of a namespace
    std::deque<std::string> waiting;  // each of them in dirty_, none in processing_
    int processing = 0;
  };
  using Turns = std::list<std::string>;
  // By time, then by when it was first delayed: equal times keep their order.
  using Delayed = std::map<std::pair<Time, std::uint64_t>, std::string>;

  void add_locked(const std::string& key, Time now) PLIMSOLL_REQUIRES(mutex_);
  void delay_locked(const std::string& key, std::chrono::nanoseconds delay) PLIMSOLL_REQUIRES(mutex_);
  void push(const std::string& key) PLIMSOLL_REQUIRES(mutex_);
  void move_due() PLIMSOLL_REQUIRES(mutex_);
  Turns::const_iterator next_turn() const PLIMSOLL_REQUIRES(mutex_);
  std::optional<std::string> take() PLIMSOLL_REQUIRES(mutex_);

  const Clock& clock_;
  QueueObserver ignore_;
  QueueObserver& observer_;
  mutable Mutex mutex_;
  std::condition_variable_any changed_;  // always notify_all: workers are few, and drain() waits on it, too
  RetryDelays retries_ PLIMSOLL_GUARDED_BY(mutex_);
  const int max_processing_;  // keys of one namespace at the same time
  std::unordered_map<std::string, Flow> flows_ PLIMSOLL_GUARDED_BY(mutex_);  // by namespace; no empty ones
  Turns turns_ PLIMSOLL_GUARDED_BY(mutex_);  // namespaces with waiting keys, the next one first
  std::size_t waiting_ PLIMSOLL_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::string, Time> dirty_
      PLIMSOLL_GUARDED_BY(mutex_);  // to be processed, and since when
  std::unordered_map<std::string, Time> processing_ PLIMSOLL_GUARDED_BY(mutex_);  // and since when
  Delayed delayed_ PLIMSOLL_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Delayed::iterator> delayed_by_key_ PLIMSOLL_GUARDED_BY(mutex_);
  std::uint64_t delays_ PLIMSOLL_GUARDED_BY(mutex_) = 0;
  bool shut_down_ PLIMSOLL_GUARDED_BY(mutex_) = false;
  Time last_done_ PLIMSOLL_GUARDED_BY(mutex_) = Time::min();
};

}  // namespace plimsoll::kube
