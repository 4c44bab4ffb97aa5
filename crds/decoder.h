// Decoder: the visitor of `describe` that reads JSON into members. It collects errors instead of stopping at the first,
// leaves a member that it cannot read at its default, and treats null as absent, as the API server does. Inside crds/
// only. One thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/bytes.h"
#include "base/json/view.h"
#include "crds/enums.h"
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

  // Ranges and rules that a type does not need to be read are the Checker's.
  void boolean(const char* name, bool& value, Presence presence) { field(name, presence, value); }
  void optional_boolean(const char* name, std::optional<bool>& value) {
    field(name, Presence::kOptional, value);
  }
  void integer(const char* name, std::int64_t& value, Presence presence, Range) {
    field(name, presence, value);
  }
  void optional_integer(const char* name, std::optional<std::int64_t>& value, Range) {
    field(name, Presence::kOptional, value);
  }
  void integers(const char* name, std::vector<std::int64_t>& values, Presence presence, Range count, Range) {
    list(name, presence, count, values);
  }
  void integer_set(const char* name, std::vector<std::int64_t>& values, Range count, Range) {
    list(name, Presence::kOptional, count, values);
  }
  void text(const char* name, std::string& value, Presence presence, const TextRule&) {
    field(name, presence, value);
  }
  void texts(const char* name, std::vector<std::string>& values, Range count, const TextRule&) {
    list(name, Presence::kOptional, count, values);
  }
  void decimal(const char* name, double& value, Presence presence, const DecimalRule& rule) {
    field(name, presence, value, rule);
  }
  void optional_decimal(const char* name, std::optional<double>& value, const DecimalRule& rule) {
    field(name, Presence::kOptional, value, rule);
  }
  void optional_bytes(const char* name, std::optional<Bytes>& value, const QuantityRule& rule) {
    field(name, Presence::kOptional, value, rule);
  }
  void percentage(const char* name, double& value, Presence presence, const TextRule& rule) {
    field(name, presence, value, rule);
  }
  template <class E>
  void choice(const char* name, E& value, Presence presence) {
    field(name, presence, value);
  }
  template <class E>
  void choice_but(const char* name, E& value, Presence presence, std::initializer_list<E>) {
    field(name, presence, value);
  }
  template <class E>
  void choices(const char* name, std::vector<E>& values, Range count) {
    list(name, Presence::kOptional, count, values);
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
    list(name, presence, count, values);
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
  // Empty, too, when it is not a list or has a wrong length.
  JsonRange<JsonView> find_list(std::string_view name, Presence presence, Range count);
  bool is_object(const JsonView& value, const FieldPath& path);
  template <class T, class... Rule>
  void field(const char* name, Presence presence, T& value, const Rule&... rule) {
    if (const std::optional<JsonView> found = find(name, presence)) {
      read(*found, FieldPath(path_, name), value, rule...);
    }
  }

  template <class T>
  void list(const char* name, Presence presence, Range count, std::vector<T>& values) {
    const JsonRange<JsonView> elements = find_list(name, presence, count);
    const FieldPath path(path_, name);
    values.reserve(elements.size());
    for (const JsonView element : elements) {
      const FieldPath element_path(path, values.size());
      read(element, element_path, values.emplace_back());
    }
  }

  void read(const JsonView& found, const FieldPath& path, bool& value);
  void read(const JsonView& found, const FieldPath& path, std::int64_t& value);
  void read(const JsonView& found, const FieldPath& path, std::string& value);
  void read(const JsonView& found, const FieldPath& path, double& value, const DecimalRule& rule);
  void read(const JsonView& found, const FieldPath& path, double& share, const TextRule& rule);
  void read(const JsonView& found, const FieldPath& path, Bytes& value, const QuantityRule& rule);

  template <class T, class... Rule>
  void read(const JsonView& found, const FieldPath& path, std::optional<T>& value, const Rule&... rule) {
    const std::size_t before = errors_.list().size();
    read(found, path, value.emplace(), rule...);
    if (errors_.list().size() != before) {
      value.reset();
    }
  }

  template <NamedEnum E>
  void read(const JsonView& found, const FieldPath& path, E& value) {
    const std::optional<std::string_view> name = found.text();
    if (!name) {
      errors_.add(path, std::string("must be a string, is ") + kind_of(found));
    } else if (const std::optional<E> known = enum_of<E>(*name)) {
      value = *known;
    } else {
      errors_.add(path, "must be one of " + enum_choices<E>() + ", is " + quoted(*name));
    }
  }

  template <class T>
  requires std::is_class_v<T>
  void read(const JsonView& found, const FieldPath& path, T& value) {
    if (is_object(found, path)) {
      Decoder inner(found, path, errors_);
      describe(inner, value);
    }
  }

  const JsonView object_;
  const FieldPath& path_;
  FieldErrors& errors_;
};

}  // namespace plimsoll::crds
