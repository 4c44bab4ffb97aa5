// Decoder: the visitor of `describe` that reads JSON into members. It collects what is wrong instead of
// stopping, leaves a member that it could not read as it was, and takes null for absent, as the API server
// does. Inside crds/ only. One thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/json/view.h"
#include "crds/enum_names.h"
#include "crds/field_path.h"
#include "crds/field_rules.h"

namespace plimsoll::crds {

// "a string", "a list", ...: what an error calls a value.
const char* kind_of(const JsonView& value);

// The value as an error quotes it: on one line and not long.
std::string quoted(std::string_view text);

class Decoder {
 public:
  // `object` must be an object; what it shows, path and errors must outlive the decoder.
  Decoder(const JsonView& object, const FieldPath& path, FieldErrors& errors)
      : object_(object), path_(path), errors_(errors) {}

  void boolean(const char* name, bool& value, Presence presence);
  void integer(const char* name, std::int64_t& value, Presence presence, Range range);
  void optional_integer(const char* name, std::optional<std::int64_t>& value, Range range);
  void integers(const char* name, std::vector<std::int64_t>& values, Presence presence, Range count,
                Range range);
  void integer_set(const char* name, std::vector<std::int64_t>& values, Range count, Range range) {
    integers(name, values, Presence::kOptional, count, range);
  }
  void text(const char* name, std::string& value, Presence presence, const TextRule& rule);
  void texts(const char* name, std::vector<std::string>& values, Range count, const TextRule& rule);
  void decimal(const char* name, double& value, Presence presence, const DecimalRule& rule);
  void optional_decimal(const char* name, std::optional<double>& value, const DecimalRule& rule);
  void optional_bytes(const char* name, std::optional<Bytes>& value, const QuantityRule& rule);
  void percentage(const char* name, double& value, Presence presence, const TextRule& rule);

  template <class E>
  void choice(const char* name, E& value, Presence presence) {
    if (const std::optional<JsonView> found = find(name, presence)) {
      read_choice(*found, FieldPath(path_, name), value);
    }
  }

  template <class E>
  void choice_but(const char* name, E& value, Presence presence, std::initializer_list<E> /*checked later*/) {
    choice(name, value, presence);
  }

  template <class E>
  void choices(const char* name, std::vector<E>& values, Range count) {
    const FieldPath path(path_, name);
    for (const JsonView element : find_list(name, Presence::kOptional, count)) {
      const FieldPath element_path(path, values.size());
      read_choice(element, element_path, values.emplace_back());
    }
  }

  template <class T>
  void object(const char* name, T& value, Presence presence) {
    group(name, presence, [&](Decoder& inner) { describe(inner, value); });
  }

  template <class T>
  void optional_object(const char* name, std::optional<T>& value) {
    group(name, Presence::kOptional, [&](Decoder& inner) { describe(inner, value.emplace()); });
  }

  template <class T>
  void objects(const char* name, std::vector<T>& values, Presence presence, Range count) {
    const JsonRange<JsonView> list = find_list(name, presence, count);
    const FieldPath path(path_, name);
    values.reserve(list.size());
    for (const JsonView element : list) {
      const FieldPath element_path(path, values.size());
      T& value = values.emplace_back();
      if (is_object(element, element_path)) {
        Decoder inner(element, element_path, errors_);
        describe(inner, value);
      }
    }
  }

  // An object whose fields are members of the outer struct.
  template <class Describe>
  void group(const char* name, Presence presence, Describe fields) {
    const std::optional<JsonView> found = find(name, presence);
    const FieldPath path(path_, name);
    if (found && is_object(*found, path)) {
      Decoder inner(*found, path, errors_);
      fields(inner);
    }
  }

 private:
  // Nothing when it is absent or null.
  std::optional<JsonView> find(std::string_view name, Presence presence);
  // Empty, too, when it is no list or one of a wrong length.
  JsonRange<JsonView> find_list(std::string_view name, Presence presence, Range count);
  bool is_object(const JsonView& value, const FieldPath& path);
  void read_integer(const JsonView& found, const FieldPath& path, std::int64_t& value);
  void read_text(const JsonView& found, const FieldPath& path, std::string& value);
  std::optional<double> read_decimal(const JsonView& found, const FieldPath& path, const DecimalRule& rule);

  template <class E>
  void read_choice(const JsonView& found, const FieldPath& path, E& value) {
    const std::optional<std::string_view> name = found.text();
    if (!name) {
      errors_.add(path, std::string("must be a string, is ") + kind_of(found));
    } else if (const std::optional<E> known = enum_of<E>(*name)) {
      value = *known;
    } else {
      errors_.add(path, "must be one of " + enum_choices<E>() + ", is " + quoted(*name));
    }
  }

  const JsonView object_;
  const FieldPath& path_;
  FieldErrors& errors_;
};

}  // namespace plimsoll::crds
