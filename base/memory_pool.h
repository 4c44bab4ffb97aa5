// MemoryPool: how much memory the work of a process may take together. Code that is about to allocate much
// reserves it first; when the pool is empty, work waits or is refused, and the process does not run out of memory.
//
//   MemoryPool pool(128_MiB);
//   Result<MemoryPool::Reservation> memory = pool.reserve(64_MiB, deadline, stop);
//   if (!memory) return memory.error();          // kTooManyRequests: try again later
//   ...                                          // released when `memory` goes out of scope
//
// Reservations are estimates: nothing is allocated here. Large ones are served in the order they came and
// leave a quarter of the pool to small ones, which do not wait behind them: a review of a few KiB is never
// kept waiting by one of megabytes. Thread-safe; must outlive its reservations.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <stop_token>
#include <utility>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/result.h"

namespace plimsoll {

class MemoryPool {
 public:
  using Time = std::chrono::steady_clock::time_point;

  class Reservation {
   public:
    Reservation() = default;  // of nothing
    ~Reservation() { release(); }
    Reservation(Reservation&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), bytes_(std::exchange(other.bytes_, Bytes())) {}
    Reservation& operator=(Reservation&& other) noexcept {
      if (this != &other) {
        release();
        pool_ = std::exchange(other.pool_, nullptr);
        bytes_ = std::exchange(other.bytes_, Bytes());
      }
      return *this;
    }

    Bytes bytes() const { return bytes_; }
    void release();

   private:
    friend class MemoryPool;
    Reservation(MemoryPool& pool, Bytes bytes) : pool_(&pool), bytes_(bytes) {}

    MemoryPool* pool_ = nullptr;
    Bytes bytes_;
  };

  struct Stats {
    Bytes limit;
    Bytes reserved;
    Bytes most_reserved;
    std::uint64_t rejected = 0;
  };

  explicit MemoryPool(Bytes limit) : limit_(limit) {}
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // Waits until the bytes are free. Errors: kTooLarge when they never will be, kTooManyRequests when they
  // were not by the deadline, kCancelled when the stop came first.
  Result<Reservation> reserve(Bytes bytes, Time deadline, const std::stop_token& stop = {});

  // The most that reserve() can give.
  Bytes largest() const { return limit_ - Bytes{limit_.count / kShareForSmall}; }
  Stats stats() const;

 private:
  static constexpr std::int64_t kShareForSmall = 4;  // one in so many bytes is left to small reservations
  static constexpr std::int64_t kSmall = 16;         // which are those up to one in so many

  void give_back(Bytes bytes);

  const Bytes limit_;
  mutable Mutex mutex_;
  std::condition_variable_any freed_;
  Bytes reserved_ PLIMSOLL_GUARDED_BY(mutex_);
  Bytes most_reserved_ PLIMSOLL_GUARDED_BY(mutex_);
  std::uint64_t rejected_ PLIMSOLL_GUARDED_BY(mutex_) = 0;
  std::uint64_t tickets_ PLIMSOLL_GUARDED_BY(mutex_) = 0;
  std::deque<std::uint64_t> line_ PLIMSOLL_GUARDED_BY(mutex_);  // large reservations that wait, by ticket
};

}  // namespace plimsoll
