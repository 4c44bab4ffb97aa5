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
#include "base/json.h"
#include "crds/enum_names.h"
#include "crds/field_path.h"
#include "crds/field_rules.h"

namespace plimsoll::crds {

// "a string", "a list", ...: what an error calls a value.
const char* kind_of(const Json& value);

// The value as an error quotes it: on one line and not long.
std::string quoted(std::string_view text);

class Decoder {
 public:
  // `object` must be an object and outlive the decoder, as must path and errors.
  Decoder(const Json& object, const FieldPath& path, FieldErrors& errors)
      : object_(object), path_(path), errors_(errors) {}

  void boolean(const char* name, bool& value, Presence presence);
  void integer(const char* name, std::int64_t& value, Presence presence, Range range);
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
    if (const Json* found = find(name, presence)) {
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
    if (const Json* list = find_list(name, Presence::kOptional, count)) {
      for (Json::ArrayIndex i = 0; i < list->size(); ++i) {
        read_choice((*list)[i], FieldPath(path, i), values.emplace_back());
      }
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
    const Json* list = find_list(name, presence, count);
    if (list == nullptr) {
      return;
    }
    const FieldPath path(path_, name);
    values.reserve(list->size());
    std::size_t index = 0;
    // By iterator: jsoncpp keeps arrays in a map, and an index would search it.
    for (const Json& element : *list) {
      const FieldPath element_path(path, index++);
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
    const Json* found = find(name, presence);
    const FieldPath path(path_, name);
    if (found != nullptr && is_object(*found, path)) {
      Decoder inner(*found, path, errors_);
      fields(inner);
    }
  }

 private:
  const Json* find(std::string_view name, Presence presence);
  const Json* find_list(std::string_view name, Presence presence, Range count);
  bool is_object(const Json& value, const FieldPath& path);
  void read_integer(const Json& found, const FieldPath& path, std::int64_t& value);
  void read_text(const Json& found, const FieldPath& path, std::string& value);
  std::optional<double> read_decimal(const Json& found, const FieldPath& path, const DecimalRule& rule);

  template <class E>
  void read_choice(const Json& found, const FieldPath& path, E& value) {
    const char* begin = nullptr;
    const char* end = nullptr;
    if (!found.isString() || !found.getString(&begin, &end)) {
      errors_.add(path, std::string("must be a string, is ") + kind_of(found));
      return;
    }
    const std::string_view name(begin, static_cast<std::size_t>(end - begin));
    if (const std::optional<E> known = enum_of<E>(name)) {
      value = *known;
    } else {
      errors_.add(path, "must be one of " + enum_choices<E>() + ", is " + quoted(name));
    }
  }

  const Json& object_;
  const FieldPath& path_;
  FieldErrors& errors_;
};

}  // namespace plimsoll::crds
