#include "base/memory_pool.h"

#include <algorithm>

namespace plimsoll {

void MemoryPool::Reservation::release() {
  if (pool_ != nullptr) {
    std::exchange(pool_, nullptr)->give_back(std::exchange(bytes_, Bytes()));
  }
}

Result<MemoryPool::Reservation> MemoryPool::reserve(Bytes bytes, Time deadline, const std::stop_token& stop) {
  const bool small = bytes.count <= limit_.count / kSmall;
  const Bytes limit = small ? limit_ : largest();
  MutexLock lock(mutex_);
  if (bytes > limit) {
    ++rejected_;
    return Error(ErrorCode::kTooLarge, "it needs " + to_string(bytes) + " of memory, and this process has " +
                                           to_string(limit) + " for such work; raise its memory limit");
  }
  const std::uint64_t ticket = ++tickets_;
  if (!small) {
    line_.push_back(ticket);
  }
  const auto free = [&]() PLIMSOLL_REQUIRES(mutex_) {
    return (small || line_.front() == ticket) && reserved_ + bytes <= limit;
  };
  const bool served = free() || freed_.wait_until(lock, stop, deadline, free);
  if (!small) {
    std::erase(line_, ticket);
    freed_.notify_all();  // the next in line is at the front now
  }
  if (!served) {
    ++rejected_;
    return stop.stop_requested() ? Error(ErrorCode::kCancelled, "the process stops")
                                 : Error(ErrorCode::kTooManyRequests,
                                         "no memory was free in time: " + to_string(reserved_) + " of " +
                                             to_string(limit_) + " are in use; try again later");
  }
  reserved_ += bytes;
  most_reserved_ = std::max(most_reserved_, reserved_);
  return Reservation(*this, bytes);
}

void MemoryPool::give_back(Bytes bytes) {
  const MutexLock lock(mutex_);
  reserved_ -= bytes;
  freed_.notify_all();
}

MemoryPool::Stats MemoryPool::stats() const {
  const MutexLock lock(mutex_);
  return {.limit = limit_, .reserved = reserved_, .most_reserved = most_reserved_, .rejected = rejected_};
}

}  // namespace plimsoll
