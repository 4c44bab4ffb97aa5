#include "kube/work_queue.h"

#include <algorithm>
#include <limits>

#include "kube/object_store.h"

namespace plimsoll::kube {
namespace {

// The longest single wait for a delayed key: a sum of times must stay within the clock's range.
constexpr std::chrono::hours kMaxWait{1};

}  // namespace

WorkQueue::WorkQueue(Options options)
    : clock_(*options.clock),
      observer_(options.observer != nullptr ? *options.observer : ignore_),
      retries_(options.retries, *options.clock),
      max_processing_(options.workers > 1 ? options.workers - 1 : std::numeric_limits<int>::max()) {}

void WorkQueue::push(const std::string& key) {
  const std::string name = namespace_of(key);
  Flow& flow = flows_[name];
  if (flow.waiting.empty()) {
    turns_.push_back(name);
  }
  flow.waiting.push_back(key);
  observer_.depth(++waiting_);
  changed_.notify_all();
}

void WorkQueue::add_locked(const std::string& key, Time now) {
  if (shut_down_ || !dirty_.emplace(key, now).second) {
    return;
  }
  observer_.added();
  if (!processing_.contains(key)) {
    push(key);
  }
}

// A key is added as of the time when it was due, before keys that are added now.
void WorkQueue::move_due() {
  const Time now = clock_.steady_now();
  while (!delayed_.empty() && delayed_.begin()->first.first <= now) {
    const auto first = delayed_.begin();
    const std::string key = std::move(first->second);
    const Time due = first->first.first;
    delayed_by_key_.erase(key);
    delayed_.erase(first);
    add_locked(key, due);
  }
}

void WorkQueue::delay_locked(const std::string& key, std::chrono::nanoseconds delay) {
  if (shut_down_) {
    return;
  }
  observer_.retried();
  const Time now = clock_.steady_now();
  if (delay <= std::chrono::nanoseconds::zero()) {
    add_locked(key, now);
    return;
  }
  // A time beyond the clock's range would overflow to one before now.
  const Time due = now + std::min<Time::duration>(delay, Time::max() - now);
  std::uint64_t order = delays_++;
  if (const auto known = delayed_by_key_.find(key); known != delayed_by_key_.end()) {
    if (known->second->first.first <= due) {
      return;
    }
    order = known->second->first.second;
    delayed_.erase(known->second);
  }
  delayed_by_key_[key] = delayed_.emplace(std::pair(due, order), key).first;
  changed_.notify_all();  // it may be due before the key that workers wait for
}

void WorkQueue::add(const std::string& key) {
  const MutexLock lock(mutex_);
  move_due();
  add_locked(key, clock_.steady_now());
}

void WorkQueue::add_after(const std::string& key, std::chrono::nanoseconds delay) {
  const MutexLock lock(mutex_);
  move_due();
  delay_locked(key, delay);
}

void WorkQueue::add_rate_limited(const std::string& key) {
  const MutexLock lock(mutex_);
  move_due();
  delay_locked(key, retries_.next(key));
}

void WorkQueue::forget(const std::string& key) {
  const MutexLock lock(mutex_);
  retries_.forget(key);
}

int WorkQueue::failures(const std::string& key) const {
  const MutexLock lock(mutex_);
  return retries_.failures(key);
}

// Skips few namespaces, since each of those has nearly all workers. After shut_down none is skipped.
WorkQueue::Turns::const_iterator WorkQueue::next_turn() const {
  return std::find_if(turns_.begin(), turns_.end(),
                      [this](const std::string& name) PLIMSOLL_REQUIRES(mutex_) {
                        return shut_down_ || flows_.at(name).processing < max_processing_;
                      });
}

std::optional<std::string> WorkQueue::take() {
  const auto turn = next_turn();
  if (turn == turns_.end()) {
    return std::nullopt;
  }
  Flow& flow = flows_.at(*turn);
  std::string key = std::move(flow.waiting.front());
  flow.waiting.pop_front();
  ++flow.processing;
  --waiting_;
  if (flow.waiting.empty()) {
    turns_.erase(turn);
  } else {
    turns_.splice(turns_.end(), turns_, turn);
  }
  const Time now = clock_.steady_now();
  const auto waiting = dirty_.find(key);
  observer_.depth(waiting_);
  observer_.waited(now - waiting->second);
  dirty_.erase(waiting);
  processing_.emplace(key, now);
  return key;
}

std::optional<std::string> WorkQueue::try_get() {
  const MutexLock lock(mutex_);
  move_due();
  return take();
}

std::optional<std::string> WorkQueue::get(const std::stop_token& stop) {
  MutexLock lock(mutex_);
  while (!stop.stop_requested()) {
    move_due();
    if (std::optional<std::string> key = take()) {
      return key;
    }
    if (shut_down_) {
      return std::nullopt;
    }
    // Until something is added or changes, or the first delayed key is due.
    const auto woken = [this]()
                           PLIMSOLL_REQUIRES(mutex_) { return next_turn() != turns_.end() || shut_down_; };
    if (delayed_.empty()) {
      changed_.wait(lock, stop, [&]() PLIMSOLL_REQUIRES(mutex_) { return woken() || !delayed_.empty(); });
    } else {
      const Time due = delayed_.begin()->first.first;
      changed_.wait_for(lock, stop, std::min<Time::duration>(due - clock_.steady_now(), kMaxWait),
                        [&]() PLIMSOLL_REQUIRES(mutex_) {
                          return woken() || delayed_.empty() || delayed_.begin()->first.first < due;
                        });
    }
  }
  return std::nullopt;
}

void WorkQueue::done(const std::string& key) {
  const MutexLock lock(mutex_);
  move_due();
  const auto worked = processing_.find(key);
  if (worked == processing_.end()) {
    return;
  }
  observer_.worked(clock_.steady_now() - worked->second);
  processing_.erase(worked);
  last_done_ = clock_.steady_now();
  const auto flow = flows_.find(namespace_of(key));
  const bool was_full = flow->second.processing-- == max_processing_;
  if (dirty_.contains(key)) {
    push(key);
  } else if (flow->second.processing == 0 && flow->second.waiting.empty()) {
    flows_.erase(flow);
  }
  if (was_full || processing_.empty()) {
    changed_.notify_all();
  }
}

void WorkQueue::shut_down() {
  const MutexLock lock(mutex_);
  move_due();
  shut_down_ = true;
  delayed_.clear();
  delayed_by_key_.clear();
  changed_.notify_all();
}

bool WorkQueue::drain(const std::stop_token& stop) {
  shut_down();
  MutexLock lock(mutex_);
  return changed_.wait(lock, stop, [this]() PLIMSOLL_REQUIRES(mutex_) { return processing_.empty(); });
}

std::size_t WorkQueue::size() {
  const MutexLock lock(mutex_);
  move_due();
  return waiting_;
}

std::optional<Clock::SteadyTime> WorkQueue::next_due() const {
  const MutexLock lock(mutex_);
  return delayed_.empty() ? std::nullopt : std::optional(delayed_.begin()->first.first);
}

WorkQueue::Unfinished WorkQueue::unfinished() const {
  const MutexLock lock(mutex_);
  const Time now = clock_.steady_now();
  Unfinished work;
  for (const auto& [key, since] : processing_) {
    work.total += now - since;
    work.longest = std::max<std::chrono::nanoseconds>(work.longest, now - since);
  }
  return work;
}

std::chrono::nanoseconds WorkQueue::stalled_for() const {
  const MutexLock lock(mutex_);
  if (processing_.empty()) {
    return {};
  }
  Time oldest = Time::max();
  for (const auto& [key, since] : processing_) {
    oldest = std::min(oldest, since);
  }
  return clock_.steady_now() - std::max(oldest, last_done_);
}

}  // namespace plimsoll::kube
