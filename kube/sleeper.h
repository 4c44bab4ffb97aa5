// How a background activity waits: until the time has passed or it is asked to stop. A test's implementation
// may move a virtual clock instead. Thread-safe.
#pragma once

#include <chrono>
#include <stop_token>

namespace plimsoll::kube {

class Sleeper {
 public:
  virtual ~Sleeper() = default;
  // False when the stop came first.
  virtual bool sleep_for(std::chrono::milliseconds duration, const std::stop_token& stop) = 0;
};

// Really waits; lives for ever.
Sleeper& system_sleeper();

}  // namespace plimsoll::kube
