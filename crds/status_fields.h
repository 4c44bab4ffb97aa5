// Fields of statuses, which Plimsoll writes itself: a field that is missing or of another type counts as
// unknown, and what is unknown is not written. Inside crds/ only. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/json/edit.h"
#include "base/json/json.h"
#include "base/json/view.h"

namespace plimsoll::crds {

inline std::optional<std::int64_t> integer_of(const Json& object, const char* name) {
  return JsonView(member(object, {name})).integer();
}

inline std::optional<std::int64_t> natural_of(const Json& object, const char* name) {
  const std::optional<std::int64_t> value = integer_of(object, name);
  return value && *value >= 0 ? value : std::nullopt;
}

inline std::optional<Bytes> bytes_of(const Json& object, const char* name) {
  const std::optional<std::int64_t> count = natural_of(object, name);
  return count ? std::optional(Bytes{*count}) : std::nullopt;
}

// Empty for what is not a list.
inline const Json& list_of(const Json& object, const char* name) {
  static const Json none(::Json::arrayValue);
  const Json& value = member(object, {name});
  return value.isArray() ? value : none;
}

inline void put(const JsonPlace& object, const char* name, std::int64_t value) {
  object[name] = value;
}

inline void put(const JsonPlace& object, const char* name, const std::optional<std::int64_t>& value) {
  if (value) {
    put(object, name, *value);
  }
}

inline void put(const JsonPlace& object, const char* name, const std::optional<Bytes>& value) {
  if (value) {
    put(object, name, value->count);
  }
}

inline void put(const JsonPlace& object, const char* name, const std::string& text) {
  if (!text.empty()) {
    object[name] = text;
  }
}

}  // namespace plimsoll::crds
