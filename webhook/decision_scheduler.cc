#include "webhook/decision_scheduler.h"

#include <pthread.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

namespace plimsoll::webhook {
namespace {

// How often running decisions are checked: much shorter than `long_after`.
constexpr std::chrono::milliseconds kTick{10};

}  // namespace

// A turn, from the call to its end.
struct DecisionScheduler::Entry {
  Entry(DecisionScheduler& owner, std::string of, const std::stop_token& process_stop)
      : scheduler(owner),
        namespace_name(std::move(of)),
        thread(::gettid()),
        stop_with_process(process_stop, [this] { stop.request_stop(); }) {
    ::pthread_getcpuclockid(::pthread_self(), &clock);
    begun = computed();
  }
  ~Entry() { scheduler.leave(*this); }

  // Processor time of the thread since the turn began.
  std::chrono::nanoseconds computed() const {
    timespec time{};
    ::clock_gettime(clock, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec) - begun;
  }

  DecisionScheduler& scheduler;
  const std::string namespace_name;
  const pid_t thread;
  clockid_t clock{};
  std::chrono::nanoseconds begun{};
  bool is_long = false;             // guarded by the scheduler's mutex
  bool stopped_for_others = false;  // likewise
  std::stop_source stop;
  const std::stop_callback<std::function<void()>> stop_with_process;
};

DecisionScheduler::Turn::Turn(std::stop_token stop) : stop_(std::move(stop)) {}
DecisionScheduler::Turn::Turn(std::unique_ptr<Entry> entry)
    : stop_(entry->stop.get_token()), entry_(std::move(entry)) {}
DecisionScheduler::Turn::Turn(Turn&& other) noexcept = default;
DecisionScheduler::Turn::~Turn() = default;

bool DecisionScheduler::Turn::stopped_for_others() const {
  if (entry_ == nullptr) {
    return false;
  }
  const MutexLock lock(entry_->scheduler.mutex_);
  return entry_->stopped_for_others;
}

DecisionScheduler::Options DecisionScheduler::for_cpus(int cpus) {
  Options options;
  // Two for each processor, since some wait for a ConfigMap, and one more for long decisions.
  options.max_long = std::clamp(cpus, 2, 16);
  options.slots = 2 * std::clamp(cpus, 2, 16) + options.max_long;
  return options;
}

DecisionScheduler::DecisionScheduler(Options options)
    : options_(options), watcher_([this](const std::stop_token& stop) { watch(stop); }) {}

DecisionScheduler::~DecisionScheduler() = default;

// One slot is always reserved for other namespaces.
bool DecisionScheduler::has_slot_for(const std::string& namespace_name) const {
  const auto running = running_of_.find(namespace_name);
  return turns_ < static_cast<std::size_t>(options_.slots) &&
         (running == running_of_.end() || running->second < std::max(1, options_.slots - 1));
}

Result<DecisionScheduler::Turn> DecisionScheduler::enter(const std::string& namespace_name, Time deadline,
                                                         const std::stop_token& stop) {
  MutexLock lock(mutex_);
  if (const bool waits = waiting_of_.contains(namespace_name) || !has_slot_for(namespace_name); !waits) {
    ++turns_;
    ++running_of_[namespace_name];
  } else {
    std::deque<Waiter*>& queue = waiting_of_[namespace_name];
    if (queue.size() >= options_.max_waiting) {
      ++refused_;
      return Error(ErrorCode::kTooManyRequests, std::to_string(queue.size()) + " jobs of namespace " +
                                                    namespace_name +
                                                    " already wait for a decision; submit fewer at a time");
    }
    Waiter waiter;
    queue.push_back(&waiter);
    waiter.calls.wait_until(lock, stop, deadline, [&] { return waiter.called; });
    if (!waiter.called) {
      const auto place = waiting_of_.find(namespace_name);
      std::erase(place->second, &waiter);
      if (place->second.empty()) {
        waiting_of_.erase(place);
      }
      ++refused_;
      return stop.stop_requested()
                 ? Error(ErrorCode::kCancelled, "the process is stopping")
                 : Error(ErrorCode::kTooManyRequests, "too many other jobs were being decided");
    }
  }
  lock.unlock();
  auto entry = std::make_unique<Entry>(*this, namespace_name, stop);
  lock.lock();
  running_.push_back(entry.get());
  begun_.notify_all();
  lock.unlock();
  return Turn(std::move(entry));
}

// Gives free slots to waiting requests, one namespace after the other in the order of names.
void DecisionScheduler::call_next() {
  for (std::size_t looked_at = 0; looked_at < waiting_of_.size();) {
    auto next = waiting_of_.upper_bound(last_called_);
    if (next == waiting_of_.end()) {
      next = waiting_of_.begin();
    }
    last_called_ = next->first;
    if (!has_slot_for(next->first)) {
      ++looked_at;
      continue;
    }
    looked_at = 0;
    Waiter* const waiter = next->second.front();
    next->second.pop_front();
    ++turns_;
    ++running_of_[next->first];
    if (next->second.empty()) {
      waiting_of_.erase(next);
    }
    waiter->called = true;
    waiter->calls.notify_one();
  }
}

void DecisionScheduler::leave(Entry& entry) {
  const MutexLock lock(mutex_);
  running_.remove(&entry);
  --turns_;
  if (const auto running = running_of_.find(entry.namespace_name); --running->second == 0) {
    running_of_.erase(running);
  }
  call_next();
}

void DecisionScheduler::watch(const std::stop_token& stop) {
  MutexLock lock(mutex_);
  while (!stop.stop_requested() &&
         begun_.wait(lock, stop, [this]() PLIMSOLL_REQUIRES(mutex_) { return !running_.empty(); })) {
    begun_.wait_for(lock, stop, kTick, [] { return false; });
    check_long_ones();
  }
}

void DecisionScheduler::check_long_ones() {
  std::size_t long_ones = 0;
  for (Entry* entry : running_) {
    if (!entry->is_long && entry->computed() >= options_.long_after) {
      entry->is_long = true;
      // If that is not allowed, the remaining slots for short decisions must be enough.
      ::setpriority(PRIO_PROCESS, static_cast<id_t>(entry->thread),
                    ::getpriority(PRIO_PROCESS, static_cast<id_t>(entry->thread)) + options_.nice);
    }
    long_ones += entry->is_long && !entry->stopped_for_others ? 1 : 0;
  }
  while (long_ones > static_cast<std::size_t>(options_.max_long) && stop_one()) {
    --long_ones;
  }
}

bool DecisionScheduler::stop_one() {
  std::map<std::string, int> long_of;
  std::vector<Entry*> candidates;
  for (Entry* entry : running_) {
    if (entry->is_long && !entry->stopped_for_others) {
      ++long_of[entry->namespace_name];
      if (entry->computed() >= options_.stop_after) {
        candidates.push_back(entry);
      }
    }
  }
  if (candidates.empty()) {
    return false;
  }
  Entry* const victim = *std::ranges::max_element(candidates, {}, [&](const Entry* entry) {
    return std::pair(long_of[entry->namespace_name], entry->computed());
  });
  ++stopped_;
  victim->stopped_for_others = true;
  victim->stop.request_stop();
  return true;
}

DecisionScheduler::Stats DecisionScheduler::stats() const {
  const MutexLock lock(mutex_);
  Stats stats{
      .running = running_.size(), .running_long = 0, .waiting = 0, .refused = refused_, .stopped = stopped_};
  for (const Entry* entry : running_) {
    stats.running_long += entry->is_long ? 1 : 0;
  }
  for (const auto& [name, queue] : waiting_of_) {
    stats.waiting += queue.size();
  }
  return stats;
}

}  // namespace plimsoll::webhook
