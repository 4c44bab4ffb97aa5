// Result<T>: what a call returns that can fail because of its environment (network, input, API server).
//
//   Result<Job> job = decode(text);
//   if (!job) return job.error();          // an Error converts to any Result
//   use(*job);
//
// Errors are values: a code that mirrors the Kubernetes API's reasons, a message that says what to do, and
// where it helps the offending fragment of the input. What only a bug can do asserts. Exceptions of libraries
// stop in the wrapper that calls the library; Plimsoll throws only what Budget::run catches (base/budget.h).
// Thread-safety: as the contained value.
#pragma once

#include <cassert>
#include <chrono>
#include <string>
#include <utility>
#include <variant>

namespace plimsoll {

enum class ErrorCode {
  kInvalid,          // the input is wrong and will be wrong again: 400, 422
  kUnauthorized,     // 401
  kForbidden,        // 403
  kNotFound,         // 404
  kAlreadyExists,    // 409 on create
  kConflict,         // 409 on update: read again, then retry
  kExpired,          // 410: the resourceVersion is too old, list again
  kTooLarge,         // 413, or a limit of Plimsoll's
  kTooManyRequests,  // 429: retry after `retry_after`
  kTimeout,          // a deadline passed, ours or the server's
  kUnavailable,      // no connection, 5xx: retry with back-off
  kCancelled,        // the process stops
  kUnfittable,       // the job cannot be placed within the given memory
  kUnsupported,      // understood, but not implemented for this input
  kInternal,         // a library or the system did not do what it promises
};

// The CamelCase name, as Kubernetes writes reasons: "Invalid", "NotFound", ...
const char* name_of(ErrorCode code);

struct Error {
  Error() = default;
  Error(ErrorCode why, std::string what, std::string where = {})
      : code(why), message(std::move(what)), fragment(std::move(where)) {}

  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string fragment;                      // the piece of input at fault, shortened; may be empty
  std::chrono::milliseconds retry_after{0};  // as the server sent it; 0 when it sent none

  // The same error with its context: "read jobs.yaml: <message>".
  Error within(const std::string& context) const;
};

inline Error invalid(std::string message, std::string fragment = {}) {
  return Error(ErrorCode::kInvalid, std::move(message), std::move(fragment));
}

// "Invalid: message (near `fragment`)"
std::string to_string(const Error& error);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    assert(!ok());
    return std::get<1>(state_);
  }

 private:
  T& value() {
    assert(ok());
    return std::get<0>(state_);
  }
  const T& value() const {
    assert(ok());
    return std::get<0>(state_);
  }

  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT: implicit by design

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error& error() const {
    assert(!ok_);
    return error_;
  }

 private:
  Error error_;
  bool ok_ = true;
};

}  // namespace plimsoll
