#include "base/result.h"

namespace plimsoll {

const char* name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid: return "Invalid";
    case ErrorCode::kUnauthorized: return "Unauthorized";
    case ErrorCode::kForbidden: return "Forbidden";
    case ErrorCode::kNotFound: return "NotFound";
    case ErrorCode::kAlreadyExists: return "AlreadyExists";
    case ErrorCode::kConflict: return "Conflict";
    case ErrorCode::kExpired: return "Expired";
    case ErrorCode::kTooLarge: return "RequestEntityTooLarge";
    case ErrorCode::kTooManyRequests: return "TooManyRequests";
    case ErrorCode::kTimeout: return "Timeout";
    case ErrorCode::kUnavailable: return "ServiceUnavailable";
    case ErrorCode::kCancelled: return "Cancelled";
    case ErrorCode::kUnfittable: return "Unfittable";
    case ErrorCode::kUnsupported: return "Unsupported";
    case ErrorCode::kInternal: return "InternalError";
  }
  return "InternalError";
}

Error Error::within(const std::string& context) const {
  Error outer = *this;
  outer.message = context + ": " + message;
  return outer;
}

std::string to_string(const Error& error) {
  std::string text = std::string(name_of(error.code)) + ": " + error.message;
  if (!error.fragment.empty()) {
    text += " (near `" + error.fragment + "`)";
  }
  return text;
}

}  // namespace plimsoll
