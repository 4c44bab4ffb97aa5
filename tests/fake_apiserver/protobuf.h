// Reads application/vnd.kubernetes.protobuf, which kubectl since 1.32 sends for `create namespace`,
// `create configmap` and their like. Only the kinds that those commands make are known. Pure function; any
// thread.
#pragma once

#include <string>
#include <string_view>

#include "base/json/json.h"
#include "base/result.h"

namespace plimsoll::testing::fake {

inline constexpr const char* kProtobufMediaType = "application/vnd.kubernetes.protobuf";

// The object as JSON, with apiVersion and kind. Errors: kInvalid for broken data, kUnsupported for a kind
// that is not among the known ones.
Result<Json> decode_protobuf(std::string_view bytes);

}  // namespace plimsoll::testing::fake
