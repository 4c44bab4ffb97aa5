#include "base/log.h"

#include <unistd.h>

#include <atomic>

#include "base/clock.h"
#include "base/json/edit.h"

namespace plimsoll {
namespace {

std::atomic<LogLevel> least_level = LogLevel::kInfo;
std::atomic<LogFormat> log_format = LogFormat::kText;

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return "debug";
    case LogLevel::kInfo: return "info";
    case LogLevel::kWarning: return "warning";
    case LogLevel::kError: return "error";
  }
  return "error";
}

}  // namespace

void configure_log(LogLevel least, LogFormat format) {
  least_level = least;
  log_format = format;
}

void log(LogLevel level, std::string_view message, LogFields fields) {
  if (level < least_level.load(std::memory_order_relaxed)) {
    return;
  }
  std::string line;
  const std::string time = format_milli_time(system_clock().wall_now());
  if (log_format.load(std::memory_order_relaxed) == LogFormat::kJson) {
    JsonObject record;
    record["ts"] = time;
    record["level"] = level_name(level);
    record["msg"] = std::string(message);
    for (const auto& [key, value] : fields) {
      record[key] = value.json();
    }
    line = write_json(record);
  } else {
    line = time + " " + level_name(level) + " " + std::string(message);
    for (const auto& [key, value] : fields) {
      line += " " + std::string(key) + "=" + write_json(value.json());
    }
  }
  line += '\n';
  // One write, so that records of several threads do not mix; a full or closed stderr must not stop the work.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace plimsoll
