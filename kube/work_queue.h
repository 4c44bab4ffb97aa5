// WorkQueue: the keys of objects that somebody must look at, with the semantics of client-go's rate-limiting
// work queue (util/workqueue): a key stands in it once however often it is added; it is never given to two
// workers at a time; and one that is added while a worker has it comes back when that worker is done.
//
//   while (std::optional<std::string> key = queue.get(stop)) {
//     if (reconcile(*key)) queue.forget(*key); else queue.add_rate_limited(*key);
//     queue.done(*key);   // always, also after a failure
//   }
//
// Unlike client-go's, it is fair: namespaces (what stands before a key's slash) take turns, each with its own
// keys in the order they came; and of several workers one is always kept from the namespace that has all the
// others, so that slow objects of one namespace delay no other's.
//
// Delayed keys (`add_after`) wait in a heap; one that is delayed again while it waits keeps the earlier time.
// There is no thread of its own: whoever calls moves what is due, in the order of its time, so the queue is
// at any call what it would be had each key been added at that very time. After `shut_down` nothing can be
// added, delayed keys are dropped, and workers get what is left, then nothing.
//
// Time comes from a Clock that tests may hold; only `get` and `drain` really wait. Thread-safe.
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

// What a queue tells about itself: client-go's metrics, whose names follow each. Called under the queue's
// lock, from any thread: it must be quick and not call the queue.
class QueueObserver {
 public:
  virtual ~QueueObserver() = default;
  virtual void depth(std::size_t keys) = 0;                // workqueue_depth
  virtual void added() = 0;                                // workqueue_adds_total
  virtual void waited(std::chrono::nanoseconds time) = 0;  // workqueue_queue_duration_seconds
  virtual void worked(std::chrono::nanoseconds time) = 0;  // workqueue_work_duration_seconds
  virtual void retried() = 0;                              // workqueue_retries_total
};

class WorkQueue {
 public:
  struct Options {
    RetryDelays::Options retries = {};
    // That take keys: a namespace has at most one fewer of them. Up to 1: there is no such limit.
    int workers = 0;
    const Clock* clock = &system_clock();
    QueueObserver* observer = nullptr;  // must outlive the queue
  };

  // Work in progress, for workqueue_unfinished_work_seconds and workqueue_longest_running_processor_seconds.
  struct Unfinished {
    std::chrono::nanoseconds in_all{};
    std::chrono::nanoseconds longest{};
  };

  explicit WorkQueue(Options options);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  void add(const std::string& key);
  void add_after(const std::string& key, std::chrono::nanoseconds delay);
  void add_rate_limited(const std::string& key);
  // The key's next failure is its first again. It stays in the queue.
  void forget(const std::string& key);
  int failures(const std::string& key) const;

  // The next key, which is then being processed until `done`; waits for one. Nothing: the queue was shut down
  // and is empty, or the stop came.
  std::optional<std::string> get(const std::stop_token& stop);
  // The same without waiting.
  std::optional<std::string> try_get();
  void done(const std::string& key);

  void shut_down();
  // shut_down(), then waits until no key is being processed: for workers that run on. False: the stop came.
  bool drain(const std::stop_token& stop);
  bool is_shut_down() const;

  std::size_t size();  // keys that wait for a worker
  // When the first delayed key is due.
  std::optional<Clock::SteadyTime> next_due() const;
  Unfinished unfinished() const;
  // How long nothing has been done though something is being processed; zero when nothing is.
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
  void tell_depth() PLIMSOLL_REQUIRES(mutex_);

  const Clock& clock_;
  QueueObserver* const observer_;
  mutable Mutex mutex_;
  std::condition_variable_any changed_;  // tells everyone: workers are few, and drain() waits on it too
  RetryDelays retries_ PLIMSOLL_GUARDED_BY(mutex_);
  const int most_of_a_flow_;  // keys of one namespace that are being processed
  std::unordered_map<std::string, Flow> flows_
      PLIMSOLL_GUARDED_BY(mutex_);           // by namespace; those with anything in them
  Turns turns_ PLIMSOLL_GUARDED_BY(mutex_);  // namespaces with keys that wait, the next one first
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
