// Strict JSON in and out, on jsoncpp. The reader refuses what RFC 8259 refuses (trailing text, duplicate
// keys, comments, NaN), limits the nesting, and turns jsoncpp's exceptions into errors. Pure functions; any
// thread.
#pragma once

#include <json/value.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace plimsoll {

using Json = ::Json::Value;

// Deepest nesting that is read. Kubernetes objects stay below 30.
inline constexpr int kJsonDepthLimit = 200;

// Errors: kInvalid, with line and column in the message and the text at fault as fragment.
Result<Json> parse_json(std::string_view text);

// One line, no spaces; members in alphabetical order, so that equal values give equal bytes. Doubles keep 17
// digits.
std::string write_json(const Json& value);

// Indented by two, for people.
std::string write_json_pretty(const Json& value);

// The member at a path of object keys, or the null value: member(pod, {"spec", "nodeName"}). Never throws,
// whatever the types on the way. The reference lives as long as `value` (that to null: always).
const Json& member(const Json& value, std::initializer_list<std::string_view> path);

// The member as text, or `otherwise` when it is missing or not a string.
std::string text_member(const Json& value, std::initializer_list<std::string_view> path,
                        std::string otherwise = {});

}  // namespace plimsoll
