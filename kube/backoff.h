// Exponential back-off with jitter. Plain value with its own random generator; one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>

namespace plimsoll::kube {

class Backoff {
 public:
  struct Options {
    std::chrono::milliseconds initial{100};
    std::chrono::milliseconds cap{30'000};
    double jitter = 1.0;  // a delay d becomes d .. d * (1 + jitter), so that many clients spread out
  };

  Backoff(Options options, std::uint64_t seed) : options_(options), next_(options.initial), random_(seed) {}

  // The delay before the next try; twice the one before, up to the cap, before jitter.
  std::chrono::milliseconds next() {
    const std::chrono::milliseconds base = next_;
    next_ = std::min(next_ * 2, options_.cap);
    std::uniform_real_distribution<double> share(0, options_.jitter);
    return base + std::chrono::milliseconds(
                      static_cast<std::int64_t>(static_cast<double>(base.count()) * share(random_)));
  }

  void reset() { next_ = options_.initial; }

 private:
  Options options_;
  std::chrono::milliseconds next_;
  std::mt19937_64 random_;
};

}  // namespace plimsoll::kube
