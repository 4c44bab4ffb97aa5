// Converts an HTTP response of the API server to an Error: its status code, the reason in its metav1.Status
// body, and Retry-After. Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json/json.h"
#include "base/result.h"

namespace plimsoll::kube {

// `body` may be a Status or any text of a proxy; `retry_after` is the header's value.
Error error_of_response(int status, std::string_view body, std::string_view retry_after = {});

// A metav1.Status object: the body of an error, or the object of a watch's ERROR event.
Error error_of_status(const Json& status);

// Retry-After in seconds, as the API server writes it; nothing for a date or an invalid value.
std::optional<std::chrono::seconds> parse_retry_after(std::string_view value);

}  // namespace plimsoll::kube
