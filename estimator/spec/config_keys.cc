#include "estimator/spec/config_keys.h"

#include <cmath>

#include "base/json/edit.h"
#include "base/json/view.h"

namespace plimsoll::estimator::inline spec {

// The value of a key, which `read` converts to Value; `otherwise` if it is absent or has another type.
template <class Value, class Read>
Value ConfigKeys::value(const char* key, Value otherwise, const char* expected, Read read) {
  const Json& found = json(key);
  if (found.isNull()) {
    return otherwise;
  }
  const std::optional<Value> value = read(JsonView(found));
  if (!value) {
    fail(key, expected);
  }
  return value.value_or(otherwise);
}

std::int64_t ConfigKeys::integer(const char* key, std::int64_t otherwise) {
  return value(key, otherwise, "must be an integer", [](JsonView found) -> std::optional<std::int64_t> {
    const double number = found.number().value_or(0.5);  // some tools write 32.0
    const bool whole = std::trunc(number) == number && std::abs(number) <= 1e15;
    return found.integer() || !whole ? found.integer() : static_cast<std::int64_t>(number);
  });
}

std::int64_t ConfigKeys::required(const char* key) {
  if (!has(key)) {
    fail(key, "is missing");
  }
  return integer(key, 0);
}

double ConfigKeys::number(const char* key, double otherwise) {
  return value(key, otherwise, "must be a number", [](JsonView found) { return found.number(); });
}

bool ConfigKeys::is_null(const char* key) {
  asked_.insert(key);
  const std::optional<JsonView> found = JsonView(config_).member(key);
  return found && found->is_null();
}

std::int64_t ConfigKeys::integer_or_null(const char* key, std::int64_t otherwise) {
  return is_null(key) ? 0 : integer(key, otherwise);
}

double ConfigKeys::number_or_null(const char* key, double otherwise) {
  return is_null(key) ? 0 : number(key, otherwise);
}

bool ConfigKeys::boolean(const char* key, bool otherwise) {
  return value(key, otherwise, "must be true or false", [](JsonView found) { return found.boolean(); });
}

std::string ConfigKeys::text(const char* key, const char* otherwise) {
  return std::string(value(key, std::string_view(otherwise), "must be a string",
                           [](JsonView found) { return found.text(); }));
}

const Json& ConfigKeys::json(const char* key) {
  asked_.insert(key);
  return member(config_, {key});
}

bool ConfigKeys::has_items(const char* key) {
  const Json& found = json(key);
  return found.isArray() && !found.empty();
}

std::string ConfigKeys::architecture() {
  return text_member(element(json("architectures"), 0), {});
}

std::int64_t ConfigKeys::labels() {
  const Json& names = json("id2label");
  if (!names.isNull() && !names.isObject()) {
    fail("id2label", "must be an object");
  }
  return names.isObject() ? static_cast<std::int64_t>(names.size()) : integer("num_labels", 2);
}

ConfigKeys ConfigKeys::nested(const char* key) {
  const Json& found = json(key);
  if (!found.isNull() && !found.isObject()) {
    fail(key, "must be an object");
  }
  return {found.isObject() ? found : Json::nullSingleton(), path_ + "." + key};
}

void ConfigKeys::take_error(const ConfigKeys& nested) {
  if (!error_) {
    error_ = nested.error_;
  }
}

void ConfigKeys::fail(const std::string& key, const std::string& what) {
  if (!error_) {
    error_ = invalid(path_ + ": " + key + " " + what);
  }
}

void ConfigKeys::only(const char* key, bool supported) {
  if (boolean(key, supported) != supported) {
    fail(key, std::string("is supported only as ") + (supported ? "true" : "false"));
  }
}

}  // namespace plimsoll::estimator::spec
