// Time that passes when a test says so. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>

#include "base/clock.h"

namespace plimsoll::testing {

class VirtualClock : public Clock {
 public:
  WallTime wall_now() const override {
    return WallTime{} + std::chrono::duration_cast<WallTime::duration>(now_.load());
  }
  SteadyTime steady_now() const override { return SteadyTime{} + now_.load(); }
  void pass(std::chrono::nanoseconds time) { now_ = now_.load() + time; }

 private:
  std::atomic<std::chrono::nanoseconds> now_{std::chrono::nanoseconds(0)};
};

}  // namespace plimsoll::testing
