// ProgressWatch: checks that work with deadlines is finished.
//
//   ProgressWatch::Work work(watch, now, deadline);    // in each worker, until the work is finished
//   if (Result<void> fine = watch.check(now); !fine) be_not_ready(fine.error());
//
// Thread-safe; must outlive its work.
#pragma once

#include <chrono>
#include <set>
#include <utility>

#include "base/mutex.h"
#include "base/result.h"

namespace plimsoll::webhook {

class ProgressWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  class Work {
   public:
    Work(ProgressWatch& watch, Time begun, Time deadline);
    ~Work();
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    ProgressWatch& watch_;
    const std::multiset<std::pair<Time, Time>>::iterator place_;
  };

  // Errors: kUnavailable when the oldest work is past its deadline and no work was finished for as long as
  // that work had time.
  Result<void> check(Time now) const;

 private:
  mutable Mutex mutex_;
  std::multiset<std::pair<Time, Time>> in_progress_ PLIMSOLL_GUARDED_BY(mutex_);  // deadline and begin
  Time last_finished_ PLIMSOLL_GUARDED_BY(mutex_) = Time::min();
};

}  // namespace plimsoll::webhook
