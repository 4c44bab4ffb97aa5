// Checker: the visitor of `describe` that checks values against their bounds, and after each struct calls
// `check_rules` for what the CEL rules say about it. Inside crds/ only. One thread.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "crds/enums.h"
#include "crds/field_path.h"
#include "crds/field_rules.h"

namespace plimsoll::crds {

// How a struct's fields fit together; overloads add errors at path.
template <class T>
void check_rules(const T&, const FieldPath&, FieldErrors&) {}

class Checker {
 public:
  Checker(const FieldPath& path, FieldErrors& errors) : path_(path), errors_(errors) {}

  void boolean(const char*, bool, Presence) {}
  void optional_boolean(const char*, const std::optional<bool>&) {}
  void integer(const char* name, std::int64_t value, Presence, Range range) {
    check_integer(FieldPath(path_, name), value, range);
  }
  void optional_integer(const char* name, const std::optional<std::int64_t>& value, Range range) {
    if (value) {
      integer(name, *value, Presence::kOptional, range);
    }
  }
  void integers(const char* name, const std::vector<std::int64_t>& values, Presence presence, Range count,
                Range range) {
    const FieldPath path(path_, name);
    check_count(path, values.size(), count, presence);
    for (std::size_t i = 0; i < values.size(); ++i) {
      check_integer(FieldPath(path, i), values[i], range);
    }
  }
  void integer_set(const char* name, const std::vector<std::int64_t>& values, Range count, Range range) {
    integers(name, values, Presence::kOptional, count, range);
    check_distinct(FieldPath(path_, name), values);
  }
  void text(const char* name, const std::string& value, Presence presence, const TextRule& rule) {
    if (presence != Presence::kOptional || !value.empty()) {
      check_text(FieldPath(path_, name), value, rule);
    }
  }
  void texts(const char* name, const std::vector<std::string>& values, Range count, const TextRule& rule) {
    const FieldPath path(path_, name);
    check_count(path, values.size(), count, Presence::kOptional);
    for (std::size_t i = 0; i < values.size(); ++i) {
      check_text(FieldPath(path, i), values[i], rule);
    }
    check_distinct(path, values);
  }
  void decimal(const char* name, double value, Presence, const DecimalRule& rule);
  void optional_decimal(const char* name, const std::optional<double>& value, const DecimalRule& rule) {
    if (value) {
      decimal(name, *value, Presence::kOptional, rule);
    }
  }
  void optional_bytes(const char* name, const std::optional<Bytes>& value, const QuantityRule& rule);
  void percentage(const char* name, double value, Presence, const TextRule& rule);

  template <class E>
  void choice(const char*, E, Presence) {}

  template <class E>
  void choice_but(const char* name, E value, Presence, std::initializer_list<E> excluded) {
    if (std::find(excluded.begin(), excluded.end(), value) != excluded.end()) {
      errors_.add(FieldPath(path_, name), std::string("cannot be ") + name_of(value));
    }
  }

  template <class E>
  void choices(const char* name, const std::vector<E>& values, Range count) {
    const FieldPath path(path_, name);
    check_count(path, values.size(), count, Presence::kOptional);
    check_distinct(path, values);
  }

  template <class T>
  void object(const char* name, const T& value, Presence) {
    check_object(FieldPath(path_, name), value);
  }

  template <class T>
  void optional_object(const char* name, const std::optional<T>& value) {
    if (value) {
      check_object(FieldPath(path_, name), *value);
    }
  }

  // The bound on the list is the decoder's: tables that come from a ConfigMap may be more than fit inline.
  template <class T>
  void objects(const char* name, const std::vector<T>& values, Presence, Range) {
    const FieldPath path(path_, name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      check_object(FieldPath(path, i), values[i]);
    }
  }

  template <class Describe>
  void group(const char* name, Presence, Describe fields) {
    const FieldPath path(path_, name);
    Checker inner(path, errors_);
    fields(inner);
  }

 private:
  template <class T>
  void check_object(const FieldPath& path, const T& value) {
    Checker inner(path, errors_);
    describe(inner, value);
    check_rules(value, path, errors_);
  }

  // As x-kubernetes-list-type: set does. The lists are short.
  template <class T>
  void check_distinct(const FieldPath& path, const std::vector<T>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (values[i] == values[j]) {
          errors_.add(FieldPath(path, i), "is twice in the list");
          return;
        }
      }
    }
  }

  void check_integer(const FieldPath& path, std::int64_t value, Range range);
  void check_text(const FieldPath& path, const std::string& value, const TextRule& rule);
  // An optional list that is empty may as well be absent.
  void check_count(const FieldPath& path, std::size_t size, Range count, Presence presence);

  const FieldPath& path_;
  FieldErrors& errors_;
};

}  // namespace plimsoll::crds
