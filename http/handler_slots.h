// HandlerSlots: limits the requests that are at the handler at the same time; others wait in a queue with a
// limit.
//
//   HandlerSlots<Connection> slots(workers, max_in_flight, in_flight);
//   if (slots.acquire(one) == Slot::kGiven) {
//     handle(one);
//     Connection* next = slots.release();   // null, or the connection that has the slot now
//   }
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "base/mutex.h"

namespace plimsoll::http {

enum class Slot { kGiven, kQueued, kRejected };

template <class Waiter>
class HandlerSlots {
 public:
  // `limit`: of requests with a slot or in the queue; their number is kept in `count`.
  HandlerSlots(std::size_t slots, std::size_t limit, std::atomic<std::uint64_t>& count)
      : slots_(slots), limit_(limit), count_(count) {}

  // kQueued: a later release() returns the waiter.
  Slot acquire(Waiter* waiter) {
    const MutexLock lock(mutex_);
    if (running_ + queue_.size() >= limit_) {
      return Slot::kRejected;
    }
    ++count_;
    if (running_ < slots_) {
      ++running_;
      return Slot::kGiven;
    }
    queue_.push_back(waiter);
    return Slot::kQueued;
  }

  // Gives the slot to the first of the queue and returns it; null when the queue is empty.
  Waiter* release() {
    const MutexLock lock(mutex_);
    --count_;
    if (queue_.empty()) {
      --running_;
      return nullptr;
    }
    Waiter* next = queue_.front();
    queue_.pop_front();
    return next;
  }

 private:
  const std::size_t slots_;
  const std::size_t limit_;
  std::atomic<std::uint64_t>& count_;
  Mutex mutex_;
  std::size_t running_ PLIMSOLL_GUARDED_BY(mutex_) = 0;
  std::deque<Waiter*> queue_ PLIMSOLL_GUARDED_BY(mutex_);
};

}  // namespace plimsoll::http
