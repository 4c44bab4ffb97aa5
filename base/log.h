// Structured logging to standard error, one line a record: people's form by default, JSON with
// --log-format=json.
//
//   log_info("Provisioned the job", {{"job", "default/ads"}, {"trainers", "64"}});
//
// Kubernetes' style: capital first, no full stop, past tense for what was done, and keys for what varies.
// Thread-safe; a record is written whole. Never blocks on anything but standard error.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace plimsoll {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

using LogFields = std::initializer_list<std::pair<std::string_view, std::string>>;

// Set once, before threads are started.
void configure_log(LogLevel least, LogFormat format);

void log(LogLevel level, std::string_view message, LogFields fields = {});

inline void log_debug(std::string_view message, LogFields fields = {}) {
  log(LogLevel::kDebug, message, fields);
}
inline void log_info(std::string_view message, LogFields fields = {}) {
  log(LogLevel::kInfo, message, fields);
}
inline void log_warning(std::string_view message, LogFields fields = {}) {
  log(LogLevel::kWarning, message, fields);
}
inline void log_error(std::string_view message, LogFields fields = {}) {
  log(LogLevel::kError, message, fields);
}

}  // namespace plimsoll
