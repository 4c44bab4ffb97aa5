// The result of a call of the fake API server: a value, or a metav1.Status with kube-apiserver's texts.
//
//   Outcome<ObjectPtr> found = find(key);
//   if (!found) return found.status();
//
// The texts and codes were taken from the answers of kube-apiserver 1.36. Plain values; any thread.
#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/json/json.h"

namespace plimsoll::testing::fake {

struct Status {
  int code = 500;
  std::string reason;  // CamelCase; may be empty
  std::string message;
  Json details;
  int retry_after_seconds = 0;  // also sent as the Retry-After header
};

Json to_json(const Status& status);

// One entry of details.causes, and one part of the message "X is invalid: field: message".
struct Cause {
  std::string reason;  // FieldValueInvalid, FieldValueRequired, ...
  std::string message;
  std::string field;
};

// The object that a status is about.
struct Subject {
  std::string group;
  std::string plural;
  std::string kind;
  std::string name;

  std::string group_resource() const { return group.empty() ? plural : plural + "." + group; }
};

Status bad_request(std::string message);
Status not_found(const Subject& subject);
Status no_such_path();
Status already_exists(const Subject& subject);
Status modified(const Subject& subject);  // the write was based on an old resourceVersion
Status conflict(const Subject& subject, const std::string& message);
Status forbidden(const Subject& subject, const std::string& message);
Status invalid_object(const Subject& subject, const std::vector<Cause>& causes);
Status expired(const std::string& message);
Status method_not_allowed();
Status unsupported_media_type(const std::string& accepted);
Status too_large(std::size_t limit);
Status too_many_requests(int retry_after_seconds);

template <class T>
class [[nodiscard]] Outcome {
 public:
  Outcome(T value) : state_(std::in_place_index<0>, std::move(value)) {}         // NOLINT: implicit by design
  Outcome(Status status) : state_(std::in_place_index<1>, std::move(status)) {}  // NOLINT

  explicit operator bool() const { return state_.index() == 0; }
  T& operator*() {
    assert(state_.index() == 0);
    return std::get<0>(state_);
  }
  const T& operator*() const {
    assert(state_.index() == 0);
    return std::get<0>(state_);
  }
  T* operator->() { return &**this; }
  const T* operator->() const { return &**this; }
  const Status& status() const {
    assert(state_.index() == 1);
    return std::get<1>(state_);
  }

 private:
  std::variant<T, Status> state_;
};

}  // namespace plimsoll::testing::fake
