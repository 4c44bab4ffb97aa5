#include "webhook/progress_watch.h"

#include <algorithm>
#include <string>

namespace plimsoll::webhook {
namespace {

// Work that ends shortly after its deadline is not stuck.
constexpr std::chrono::seconds kTolerance{1};

std::string seconds(std::chrono::steady_clock::duration time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s";
}

}  // namespace

ProgressWatch::Work::Work(ProgressWatch& watch, Time begun, Time deadline)
    : watch_(watch), place_([&] {
        const MutexLock lock(watch.mutex_);
        return watch.in_progress_.emplace(deadline, begun);
      }()) {}

ProgressWatch::Work::~Work() {
  const MutexLock lock(watch_.mutex_);
  watch_.in_progress_.erase(place_);
  watch_.last_finished_ = std::chrono::steady_clock::now();
}

Result<void> ProgressWatch::check(Time now) const {
  const MutexLock lock(mutex_);
  if (in_progress_.empty()) {
    return {};
  }
  const auto [deadline, begun] = *in_progress_.begin();
  const Time quiet_since = std::max(begun, last_finished_);
  if (now <= deadline + kTolerance || now - quiet_since <= deadline - begun) {
    return {};
  }
  return Error(ErrorCode::kUnavailable, "nothing was finished for " + seconds(now - quiet_since) + ", and " +
                                            std::to_string(in_progress_.size()) +
                                            " are in progress, the oldest " + seconds(now - deadline) +
                                            " past its deadline");
}

}  // namespace plimsoll::webhook
