// How a background activity waits: for a duration or until a stop is requested. The implementation of a test
// may advance a virtual clock instead. Thread-safe.
#pragma once

#include <chrono>
#include <stop_token>

namespace plimsoll::kube {

class Sleeper {
 public:
  virtual ~Sleeper() = default;
  // False when a stop was requested first.
  virtual bool sleep_for(std::chrono::milliseconds duration, const std::stop_token& stop) = 0;
};

// Really waits; never destroyed.
Sleeper& system_sleeper();

}  // namespace plimsoll::kube
