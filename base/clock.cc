#include "base/clock.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <ratio>
#include <string_view>

namespace plimsoll {
namespace {

class SystemClock final : public Clock {
 public:
  WallTime wall_now() const override { return std::chrono::system_clock::now(); }
  // CLOCK_BOOTTIME: a lease runs out while the machine sleeps, and std::chrono::steady_clock stands still
  // then.
  SteadyTime steady_now() const override {
    std::timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return SteadyTime(std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
  }
};

// The time with as many digits of the second as `Unit` (std::milli, std::micro) has.
template <class Unit>
std::string format_fraction(Clock::WallTime time) {
  const auto second = std::chrono::floor<std::chrono::seconds>(time);
  const auto fraction = std::chrono::duration_cast<std::chrono::duration<std::int64_t, Unit>>(time - second);
  const std::string digits = std::to_string(Unit::den + fraction.count());
  std::string text = format_time(second);
  text.replace(text.size() - 1, 1, "." + digits.substr(1) + "Z");
  return text;
}

}  // namespace

const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

std::string format_time(Clock::WallTime time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

std::string format_milli_time(Clock::WallTime time) {
  return format_fraction<std::milli>(time);
}

std::string format_micro_time(Clock::WallTime time) {
  return format_fraction<std::micro>(time);
}

std::optional<Clock::WallTime> parse_time(const std::string& text) {
  std::tm utc{};
  const char* end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &utc);
  if (end == nullptr) {
    return std::nullopt;
  }
  if (*end == '.') {
    end += 1 + std::strspn(end + 1, "0123456789");
  }
  if (std::string_view(end) != "Z") {
    return std::nullopt;
  }
  // The clock counts nanoseconds in 64 bits: to the year 2262. A status may hold any text that looks like a
  // time.
  using std::chrono::seconds;
  constexpr auto kLast = std::chrono::floor<seconds>(Clock::WallTime::max()).time_since_epoch();
  const seconds since_epoch(timegm(&utc));
  if (since_epoch > kLast || since_epoch < -kLast) {
    return std::nullopt;
  }
  return Clock::WallTime(since_epoch);
}

}  // namespace plimsoll
