// Delays before retries: exponential back-off with jitter, for one caller (Backoff) or for each key of a
// queue (RetryDelays). All retries of the product take their delays from here.
//
//   Backoff backoff({.initial = std::chrono::milliseconds(100)}, seed);
//   sleep(backoff.next());   // 0.1 s, 0.2 s, 0.4 s, ... 30 s, each longer by up to the jitter
//   backoff.reset();         // after a success
//
// The classes are for one thread, or the caller's lock.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <unordered_map>

#include "base/clock.h"

namespace plimsoll {

// `initial`, doubled once for each failure before, at most `cap`.
std::chrono::nanoseconds exponential_delay(std::chrono::nanoseconds initial, std::chrono::nanoseconds cap,
                                           std::int64_t failures);

// The delay, longer by `share` of `jitter` times itself. `share`: a random number from 0 to 1.
template <typename Duration>
Duration with_jitter(Duration delay, double jitter, double share) {
  return delay + Duration(static_cast<std::int64_t>(static_cast<double>(delay.count()) * jitter * share));
}

class Backoff {
 public:
  struct Options {
    std::chrono::milliseconds initial{100};
    std::chrono::milliseconds cap{30'000};
    double jitter = 1.0;  // a delay d becomes d .. d * (1 + jitter), so that many clients spread out
  };

  Backoff(Options options, std::uint64_t seed) : options_(options), random_(seed) {}

  std::chrono::milliseconds next();
  void reset() { failures_ = 0; }

 private:
  Options options_;
  std::int64_t failures_ = 0;
  std::mt19937_64 random_;
};

// golang.org/x/time/rate's limiter: tokens are added at a rate, up to a burst. A caller may reserve a token that
// is not there yet; it waits for it, and so does every later caller.
class TokenBucket {
 public:
  TokenBucket(double per_second, double burst, const Clock& clock);

  // Takes a token, and returns how long to wait until it is there.
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

// How long a key waits before its next try, as with client-go's default limiter for controllers: the
// longer of the key's own delay, which doubles with each failure, and the wait of a token bucket. Each group of
// keys (the part before the slash: the namespace) has a bucket of its own while keys of it fail, so that
// many failures of one do not slow the retries of others.
//
//   queue.add_after(key, delays.next(key));   // 5 ms, 10 ms, 20 ms, ... 1000 s
//   delays.forget(key);                       // after a success
class RetryDelays {
 public:
  // The figures of client-go's DefaultTypedControllerRateLimiter (util/workqueue/default_rate_limiters.go).
  struct Options {
    std::chrono::nanoseconds initial = std::chrono::milliseconds(5);
    std::chrono::nanoseconds cap = std::chrono::seconds(1000);
    double per_second = 10;  // of all keys of a group together; 0 or less: no such limit
    double burst = 100;
  };

  RetryDelays(Options options, const Clock& clock);

  std::chrono::nanoseconds next(const std::string& key);
  void forget(const std::string& key);
  // Failures since the key was forgotten.
  int failures(const std::string& key) const;

 private:
  struct Group {
    TokenBucket bucket;
    std::size_t failing = 0;  // keys in failures_
  };

  Options options_;
  const Clock* clock_;
  std::unordered_map<std::string, Group> groups_;
  std::unordered_map<std::string, int> failures_;
};

}  // namespace plimsoll
