// DecisionScheduler: which admissions compute at the moment, so that expensive ones do not keep others
// waiting.
//
//   Result<DecisionScheduler::Turn> turn = scheduler.enter(namespace_name, deadline, request.stop);
//   if (!turn) return keep_the_job(turn.error());
//   decide(review, turn->stop());                   // gives up when that is requested
//
// At most `slots` have a turn; others wait, and namespaces take turns, each in the order of its requests. No
// namespace has all slots. Whoever has computed for `long_after` is long: its thread goes on at a lower
// priority, so that short ones pass it, and when there are more than `max_long`, the one that has computed
// most, of the namespace that has most of them, is asked to stop. So there are always slots for short ones.
//
// A turn begins and ends on the thread that computes. Nothing can raise that thread's priority again: let it
// end (http::Server does). Thread-safe; must outlive its turns. One thread of its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "base/result.h"

namespace plimsoll::webhook {

class DecisionScheduler {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Options {
    int slots = 6;
    int max_long = 3;
    // Of one namespace; beyond it the answer comes at once. A deployment tool applies some dozens at a time.
    std::size_t max_waiting = 32;
    // Of processor time. The largest models that are usual take half of it.
    std::chrono::milliseconds long_after{50};
    // Added to the nice value of a long one: a tenth of the share of others.
    int nice = 10;
  };
  // `cpus`: that may compute at the same time.
  static Options for_cpus(int cpus);

  struct Stats {
    std::size_t running = 0;
    std::size_t running_long = 0;
    std::size_t waiting = 0;
    std::uint64_t refused = 0;  // for a full line or for want of a turn in time
    std::uint64_t stopped = 0;  // to make room for others
  };

 private:
  struct Entry;

 public:
  class Turn {
   public:
    Turn(Turn&& other) noexcept;
    Turn& operator=(Turn&&) = delete;
    ~Turn();

    // Requested when the process stops, or to make room for others.
    std::stop_token stop() const;
    bool stopped_for_others() const;

   private:
    friend class DecisionScheduler;
    explicit Turn(std::unique_ptr<Entry> entry);
    std::unique_ptr<Entry> entry_;
  };

  explicit DecisionScheduler(Options options);
  ~DecisionScheduler();
  DecisionScheduler(const DecisionScheduler&) = delete;
  DecisionScheduler& operator=(const DecisionScheduler&) = delete;

  // Waits for a turn. Errors: kTooManyRequests when too many of the namespace wait, or no turn came by the
  // deadline; kCancelled when the stop came first.
  Result<Turn> enter(const std::string& namespace_name, Time deadline, const std::stop_token& stop);

  Stats stats() const;

 private:
  struct Waiter {
    bool called = false;  // guarded by mutex_
    std::condition_variable_any calls;
  };

  bool has_room_for(const std::string& namespace_name) const;
  void call_next();
  void leave(Entry& entry);
  void watch(const std::stop_token& stop);
  void look_for_long_ones();
  void stop_one();

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable_any begun_;
  std::list<Entry*> running_;
  std::map<std::string, int> running_of_;                  // of a namespace, those called included
  std::size_t turns_ = 0;                                  // given, those that have yet to begin included
  std::map<std::string, std::deque<Waiter*>> waiting_of_;  // no empty ones
  std::string last_called_;                                // the namespace
  std::uint64_t refused_ = 0;
  std::uint64_t stopped_ = 0;
  std::jthread watcher_;
};

}  // namespace plimsoll::webhook
