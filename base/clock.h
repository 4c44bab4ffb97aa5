// Time as a dependency, so that tests can control it. Thread-safe implementations only.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace plimsoll {

class Clock {
 public:
  using WallTime = std::chrono::system_clock::time_point;
  using SteadyTime = std::chrono::steady_clock::time_point;

  virtual ~Clock() = default;
  virtual WallTime wall_now() const = 0;
  // Never set back. Compared with itself only: the machine's own clock counts the time that it slept, which
  // std::chrono::steady_clock::now() does not.
  virtual SteadyTime steady_now() const = 0;
};

// The machine's own clock; it is never destroyed.
const Clock& system_clock();

// RFC 3339 in UTC, as metav1.Time: "2026-11-21T08:30:00Z".
std::string format_time(Clock::WallTime time);

// "2026-11-21T08:30:00.000Z".
std::string format_milli_time(Clock::WallTime time);

// As metav1.MicroTime: "2026-11-21T08:30:00.000000Z".
std::string format_micro_time(Clock::WallTime time);

// Parses all three forms, to the second; nothing for any other text.
std::optional<Clock::WallTime> parse_time(const std::string& text);

}  // namespace plimsoll
