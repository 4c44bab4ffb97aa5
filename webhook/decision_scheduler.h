// DecisionScheduler: limits and orders the admissions that compute at the same time, so that expensive ones
// do not delay others.
//
//   Result<DecisionScheduler::Turn> turn = scheduler.enter(namespace_name, deadline, request.stop);
//   if (!turn) return keep_the_job(turn.error());
//   decide(review, turn->stop());                   // must end when a stop is requested
//
// At most `slots` admissions have a turn; the others wait. Namespaces take turns, each in the order of its
// requests, and none has all slots. A decision that has computed for `long_after` is long: its thread gets a
// lower priority, so that short decisions overtake it. When there are more than `max_long`, one that has
// computed for `stop_after` is asked to stop: of the namespace with the most long decisions, the one that has
// computed longest. So slots for short decisions become free in a time that is bounded.
//
// A turn begins and ends on the thread that computes. The priority of that thread cannot be raised again: the
// thread must end (http::Server does that). Thread-safe; must outlive its turns. It has one thread.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "base/result.h"

namespace plimsoll::webhook {

class DecisionScheduler {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Options {
    int slots = 6;
    int max_long = 3;
    // Of one namespace; more are rejected at once. A deployment tool applies some dozens at a time.
    std::size_t max_waiting = 32;
    // Processor time. The largest usual models take half of it.
    std::chrono::milliseconds long_after{50};
    // Processor time. On a slow or busy machine the usual decisions are long, too; they end before this.
    std::chrono::milliseconds stop_after{300};
    // Added to the nice value of a long decision: it then gets a tenth of the share of others.
    int nice = 10;
  };
  // `cpus`: the processors that the process may use.
  static Options for_cpus(int cpus);

  struct Stats {
    std::size_t running = 0;
    std::size_t running_long = 0;
    std::size_t waiting = 0;
    std::uint64_t refused = 0;  // the queue was full, or no turn came in time
    std::uint64_t stopped = 0;  // in favour of others
  };

 private:
  struct Entry;

 public:
  class Turn {
   public:
    // A turn without a scheduler: nobody waits for it.
    explicit Turn(std::stop_token stop);
    Turn(Turn&& other) noexcept;
    Turn& operator=(Turn&&) = delete;
    ~Turn();

    // Requested when the process stops, or in favour of others.
    std::stop_token stop() const { return stop_; }
    bool stopped_for_others() const;

   private:
    friend class DecisionScheduler;
    explicit Turn(std::unique_ptr<Entry> entry);
    std::stop_token stop_;
    std::unique_ptr<Entry> entry_;  // null without a scheduler
  };

  explicit DecisionScheduler(Options options);
  ~DecisionScheduler();
  DecisionScheduler(const DecisionScheduler&) = delete;
  DecisionScheduler& operator=(const DecisionScheduler&) = delete;

  // Waits for a turn. Errors: kTooManyRequests when too many of the namespace wait, or no turn came by the
  // deadline; kCancelled when a stop was requested first.
  Result<Turn> enter(const std::string& namespace_name, Time deadline, const std::stop_token& stop);

  Stats stats() const;

 private:
  struct Waiter {
    bool called = false;  // guarded by mutex_
    std::condition_variable_any calls;
  };

  bool has_slot_for(const std::string& namespace_name) const PLIMSOLL_REQUIRES(mutex_);
  void call_next() PLIMSOLL_REQUIRES(mutex_);
  void leave(Entry& entry);
  void watch(const std::stop_token& stop);
  void check_long_ones() PLIMSOLL_REQUIRES(mutex_);
  bool stop_one() PLIMSOLL_REQUIRES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  std::condition_variable_any begun_;
  std::list<Entry*> running_ PLIMSOLL_GUARDED_BY(mutex_);
  // By namespace, called ones included.
  std::map<std::string, int> running_of_ PLIMSOLL_GUARDED_BY(mutex_);
  std::size_t turns_ PLIMSOLL_GUARDED_BY(mutex_) = 0;  // given, including those that have not begun
  std::map<std::string, std::deque<Waiter*>> waiting_of_ PLIMSOLL_GUARDED_BY(mutex_);  // no empty ones
  std::string last_called_ PLIMSOLL_GUARDED_BY(mutex_);                                // the namespace
  std::uint64_t refused_ PLIMSOLL_GUARDED_BY(mutex_) = 0;
  std::uint64_t stopped_ PLIMSOLL_GUARDED_BY(mutex_) = 0;
  std::jthread watcher_;
};

}  // namespace plimsoll::webhook
