// JSON is changed only here. jsoncpp throws when a member is set on a string or an element is added
// to an object; here the kind of a value is checked first, so a change of JSON that somebody else wrote is an
// error and never an exception. tests/architecture/foreign_json_test.cc keeps jsoncpp's own operator[],
// append, isMember, removeMember, getMemberNames and as...() out of all other files.
//
// JSON that Plimsoll makes:
//
//   JsonObject pod;
//   pod["metadata"]["name"] = name;              // what is missing or null becomes an object
//   pod["spec"]["containers"].append(container);  // or a list
//   return pod;                                   // as Json
//
// JSON of a user:
//
//   JsonEdit edit(job);
//   edit["spec"]["volumes"].append(volume);
//   Result<Json> changed = std::move(edit).take();  // kInvalid where spec.volumes is an object
//
// A JsonPlace looks into its JsonObject, JsonArray or JsonEdit and must not outlive it; it stays good until
// the place or one above it is assigned. To read, take views (base/json/view.h) or member() (base/json/json.h).
// One thread.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"

namespace plimsoll {

class JsonPlace {
 public:
  JsonPlace(const JsonPlace&) = default;
  JsonPlace& operator=(const JsonPlace&) = delete;  // it could mean the value or the place

  // The member of that name; null and missing values on the way become objects when something is assigned.
  // Where this is not an object: an error of the whole (the first is kept), and a place that cannot be changed.
  JsonPlace operator[](std::string_view name) const;
  const JsonPlace& operator=(Json value) const;  // NOLINT: a place is assigned through, as a reference is
  // The new element; as above where this is not a list.
  JsonPlace append(Json value) const;
  // Sets the member if it is missing or null.
  void set_missing(std::string_view name, Json value) const;
  void remove(std::string_view name) const;
  // The elements of a list; none for null, and an error for what is not a list.
  std::vector<JsonPlace> elements() const;
  // The value as it is now; null for a place that cannot be changed.
  const Json& value() const;

 private:
  friend class JsonObject;
  friend class JsonArray;
  friend class JsonEdit;
  JsonPlace(Json* at, std::optional<Error>* problem) : at_(at), problem_(problem) {}
  bool becomes(::Json::ValueType type, std::string_view what) const;

  Json* at_;  // null: cannot be changed
  std::optional<Error>* problem_;
};

// {"name": value, ...}
Json json_object(std::initializer_list<std::pair<std::string_view, Json>> members);

// An object that Plimsoll makes.
class JsonObject {
 public:
  JsonPlace operator[](std::string_view name) { return JsonPlace(*this)[name]; }
  operator JsonPlace() & { return {&value_, &problem_}; }  // NOLINT(google-explicit-constructor)
  operator const Json&() const& { return value_; }         // NOLINT(google-explicit-constructor)
  operator Json() && { return std::move(value_); }         // NOLINT(google-explicit-constructor)
  const Json& json() const { return value_; }
  Json take() && { return std::move(value_); }

 private:
  Json value_{::Json::objectValue};
  std::optional<Error> problem_;
};

// A list that Plimsoll makes.
class JsonArray {
 public:
  JsonPlace append(Json value) { return JsonPlace(*this).append(std::move(value)); }
  operator JsonPlace() & { return {&value_, &problem_}; }  // NOLINT(google-explicit-constructor)
  operator const Json&() const& { return value_; }         // NOLINT(google-explicit-constructor)
  operator Json() && { return std::move(value_); }         // NOLINT(google-explicit-constructor)
  const Json& json() const { return value_; }
  Json take() && { return std::move(value_); }
  bool empty() const { return value_.empty(); }
  void clear() { value_ = Json(::Json::arrayValue); }

 private:
  Json value_{::Json::arrayValue};
  std::optional<Error> problem_;
};

// A change of JSON of any shape.
class JsonEdit {
 public:
  explicit JsonEdit(Json value) : value_(std::move(value)) {}
  JsonEdit(const JsonEdit&) = delete;
  JsonEdit& operator=(const JsonEdit&) = delete;

  JsonPlace root() { return {&value_, &problem_}; }
  JsonPlace operator[](std::string_view name) { return root()[name]; }
  // Errors: kInvalid, the first change that did not fit.
  Result<Json> take() &&;

 private:
  Json value_;
  std::optional<Error> problem_;
};

// The element of a list; null beyond its end and for what is not a list.
const Json& element(const Json& list, std::size_t index);

// The element or member itself, to change in place; null where there is none.
Json* find_element(Json& list, std::size_t index);
Json* find_member(Json& object, std::string_view name);

// For what is known to be an object or a list; false, and no change, for what is not.
bool set_member(Json& object, std::string_view name, Json value);
bool append_element(Json& list, Json value);

}  // namespace plimsoll
