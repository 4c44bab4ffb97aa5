// Structured logging to standard error, one line for each record: text by default, JSON with
// --log-format=json.
//
//   log_info("Provisioned the job", {{"job", "default/ads"}, {"trainers", 64}});
//
// Kubernetes' style: capital first, no full stop, past tense for what was done, and keys for what varies.
// Pass numbers and booleans as they are, so that JSON has them as numbers and booleans.
// Thread-safe; a record is written whole. Never blocks on anything but standard error.
#pragma once

#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "base/json/json.h"

namespace plimsoll {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

class LogValue {
 public:
  LogValue(const std::string& text) : value_(text) {}
  LogValue(std::string_view text) : value_(std::string(text)) {}
  LogValue(const char* text) : value_(std::string(text)) {}
  LogValue(bool value) : value_(value) {}
  template <std::integral Number>
  LogValue(Number number) : value_(static_cast<Json::LargestInt>(number)) {}
  template <std::unsigned_integral Number>
  LogValue(Number number) : value_(static_cast<Json::LargestUInt>(number)) {}
  template <std::floating_point Number>
  LogValue(Number number) : value_(number) {}

  const Json& json() const { return value_; }

 private:
  Json value_;
};

using LogFields = std::initializer_list<std::pair<std::string_view, LogValue>>;

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
