#include "kube/api_error.h"

#include <charconv>
#include <limits>
#include <utility>

#include "base/json/edit.h"
#include "base/json/view.h"

namespace plimsoll::kube {
namespace {

// Reasons and codes: apimachinery pkg/apis/meta/v1/types.go (StatusReason).
ErrorCode code_of(int status, const std::string& reason) {
  if (reason == "AlreadyExists") {
    return ErrorCode::kAlreadyExists;
  }
  if (reason == "Expired" || reason == "Gone") {
    return ErrorCode::kExpired;
  }
  static constexpr std::pair<int, ErrorCode> kCodes[] = {
      {400, ErrorCode::kInvalid},         {401, ErrorCode::kUnauthorized}, {403, ErrorCode::kForbidden},
      {404, ErrorCode::kNotFound},        {405, ErrorCode::kUnsupported},  {406, ErrorCode::kUnsupported},
      {408, ErrorCode::kTimeout},         {409, ErrorCode::kConflict},     {410, ErrorCode::kExpired},
      {413, ErrorCode::kTooLarge},        {415, ErrorCode::kUnsupported},  {422, ErrorCode::kInvalid},
      {429, ErrorCode::kTooManyRequests}, {504, ErrorCode::kTimeout},
  };
  for (const auto& [number, code] : kCodes) {
    if (number == status) {
      return code;
    }
  }
  if (status >= 500) {
    return ErrorCode::kUnavailable;
  }
  return status >= 400 ? ErrorCode::kInvalid : ErrorCode::kInternal;
}

constexpr std::chrono::seconds kMaxRetryAfter{3600};  // an implausible value must not overflow

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, std::min<std::size_t>(text.find_first_of("\r\n"), 300)));
}

std::optional<int> integer_of(const Json& status, std::initializer_list<std::string_view> path) {
  const std::optional<std::int64_t> value = JsonView(member(status, path)).integer();
  const bool fits =
      value && *value >= std::numeric_limits<int>::min() && *value <= std::numeric_limits<int>::max();
  return fits ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

}  // namespace

std::optional<std::chrono::seconds> parse_retry_after(std::string_view value) {
  long seconds = 0;
  const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  if (problem != std::errc() || end != value.data() + value.size() || seconds < 0) {
    return std::nullopt;
  }
  return std::min(std::chrono::seconds(seconds), kMaxRetryAfter);
}

Error error_of_status(const Json& status) {
  const int number = integer_of(status, {"code"}).value_or(500);
  Error error(code_of(number, text_member(status, {"reason"})), text_member(status, {"message"}));
  if (error.message.empty()) {
    error.message = "the API server answered " + std::to_string(number) + " without a message";
  }
  if (const int delay = integer_of(status, {"details", "retryAfterSeconds"}).value_or(0); delay > 0) {
    error.retry_after = std::min(std::chrono::seconds(delay), kMaxRetryAfter);
  }
  return error;
}

Error error_of_response(int status, std::string_view body, std::string_view retry_after) {
  Error error(code_of(status, ""), "");
  const Result<Json> parsed = parse_json(body);
  if (parsed && text_member(*parsed, {"kind"}) == "Status") {
    JsonEdit complete(*parsed);
    complete["code"] = status;
    if (const Result<Json> whole = std::move(complete).take(); whole) {
      error = error_of_status(*whole);
    }
  } else {
    error.message = "the server answered " + std::to_string(status);
    if (status >= 300 && status < 400) {
      error.message += " (a redirect, which is not followed: is this the URL of an API server?)";
    } else if (!body.empty()) {
      error.message += ": " + first_line(body);
    }
  }
  if (const auto delay = parse_retry_after(retry_after); delay) {
    error.retry_after = *delay;
  }
  return error;
}

}  // namespace plimsoll::kube
