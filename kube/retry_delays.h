// How long a key waits before it is tried again, as client-go's default limiter for controllers has it: the
// longer of a delay of its own, which doubles with each failure, and what a token bucket says. Each namespace
// has a bucket of its own, while keys of it fail: many failures of one do not slow the retries of others.
//
//   RetryDelays delays({}, clock);
//   queue.add_after(key, delays.next(key));   // 5 ms, 10 ms, 20 ms, ... 1000 s
//   delays.forget(key);                       // it went well
//
// One thread, or the caller's lock.
#pragma once

#include <chrono>
#include <string>
#include <unordered_map>

#include "base/clock.h"

namespace plimsoll::kube {

// golang.org/x/time/rate's limiter: tokens come in at a rate, up to a burst; who takes one that is not there
// yet waits for it, and so does everyone after.
class TokenBucket {
 public:
  TokenBucket(double a_second, double burst, const Clock& clock);

  // Takes a token; how long until it is there.
  std::chrono::nanoseconds reserve();
  // Takes a token only if it is there.
  bool try_take();

 private:
  void refill();

  double rate_;  // tokens a second
  double burst_;
  double tokens_;
  const Clock* clock_;
  Clock::SteadyTime last_;
};

class RetryDelays {
 public:
  // The figures of client-go's DefaultTypedControllerRateLimiter (util/workqueue/default_rate_limiters.go).
  struct Options {
    std::chrono::nanoseconds initial = std::chrono::milliseconds(5);
    std::chrono::nanoseconds cap = std::chrono::seconds(1000);
    double a_second = 10;  // of all keys of a namespace together; 0 or less: no such limit
    double burst = 100;
  };

  RetryDelays(Options options, const Clock& clock);

  std::chrono::nanoseconds next(const std::string& key);
  void forget(const std::string& key);
  // Failures since the key was forgotten.
  int failures(const std::string& key) const;

 private:
  struct Flow {
    TokenBucket bucket;
    std::size_t failing = 0;  // keys in failures_
  };

  Options options_;
  const Clock* clock_;
  std::unordered_map<std::string, Flow> flows_;  // by namespace
  std::unordered_map<std::string, int> failures_;
};

}  // namespace plimsoll::kube
